package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// One replica of three cannot do the work, and gets its share of the ticks. By default, it hands a
// tick over before the last attempt, so every tick succeeds on another replica. Another value is the
// number of attempts that it makes.
// Mutants: all attempts are its own; it claims again what it has handed over.
func TestFault116_ABrokenReplica(t *testing.T) {
	for _, c := range []struct{ after, most, want int }{{0, 3, 2}, {0, 2, 1}, {0, 5, 2}, {1, 3, 1}, {3, 5, 3}} {
		inBubble(t, func(t *testing.T, f *fleet) {
			cfg := singleton.JobConfig{MaxAttempts: c.most, HandOverAfter: c.after}
			f.three("@every 1m", func(_ context.Context, run singleton.Run) error {
				if run.Holder == "b" {
					return errBroken
				}
				return nil
			}, cfg)
			f.recorded("draw", 30)
			began := 0
			for _, r := range f.ended("draw") {
				last := r.Attempts[len(r.Attempts)-1]
				if r.Outcome != singleton.OutcomeSucceeded || len(r.Attempts) != 1 && len(r.Attempts) != c.want+1 || last.Holder == "b" {
					t.Errorf("%+v: the record is %+v", c, r)
				}
				if r.Attempts[0].Holder == "b" {
					began++
				}
				if pause := 800 * time.Millisecond << (c.want - 1); len(r.Attempts) > 1 && last.Start.Sub(r.Attempts[c.want-1].End) < pause {
					t.Errorf("%+v: the next replica began without the pause: %+v", c, r.Attempts)
				}
			}
			if began == 0 {
				t.Errorf("%+v: the broken replica has claimed no tick of 30", c)
			}
			if n := f.log.Count("b: ", "handing over to another replica"); n != began {
				t.Errorf("%+v: logged %d times, want %d", c, n, began)
			}
		})
	}
}

// A replica that knows no other one makes all attempts itself, with the same pauses, and so does one
// with a negative HandOverAfter.
// Mutant: it waits for others that are not there.
func TestFault116_NoOtherReplica(t *testing.T) {
	for _, replicas := range []string{"a", "ab"} {
		inBubble(t, func(t *testing.T, f *fleet) {
			cfg := singleton.JobConfig{MaxAttempts: 4}
			if len(replicas) > 1 {
				cfg.HandOverAfter = -1
			}
			for _, name := range replicas {
				r := f.replica(string(name), singleton.Config{})
				r.add("draw", "@every 1m", func(context.Context, singleton.Run) error { return errBroken }, cfg)
				r.run()
			}
			r := f.recorded("draw", 1)[0]
			if took := r.End.Sub(r.Attempts[0].Start); r.Outcome != singleton.OutcomeFailed || len(r.Attempts) != 4 || took < 6*time.Second || took > 9*time.Second {
				t.Errorf("after %v the record is %+v", took, r)
			}
			for _, a := range r.Attempts {
				if a.Holder != r.Holder || a.Token != r.Token {
					t.Errorf("the attempts are %+v", r.Attempts)
				}
			}
		})
	}
}
