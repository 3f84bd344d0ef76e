package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Work that ends within the drain is recorded, and not run again.
// Mutant: the work's context ends with Run's.
func TestShutdownWaitsForTheWork(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		work := sleep(500 * time.Millisecond)
		all := f.three("@every 1s", work, singleton.JobConfig{})
		first := f.begun("draw", 1)[0]
		all[first.replica].stop()
		entries := f.begun("draw", 1)
		if entries[0].end.IsZero() {
			t.Error("Run has returned before its work")
		}
		if record := f.firstEnd("draw"); record.Outcome != singleton.OutcomeSucceeded || record.Holder != first.replica || record.Attempt != 1 {
			t.Errorf("record is %+v", record)
		}
		f.begun("draw", 3)
		f.alone("draw")
		for _, e := range f.book.all()[1:] {
			if e.replica == first.replica || e.run.Tick.Equal(first.run.Tick) {
				t.Errorf("after the shutdown came %+v of %s", e.run, e.replica)
			}
		}
	})
}

// The context of work that continues after the drain ends. Until the work returns, its tick
// stays with it; then another replica runs it at once.
// Mutants: the tick is released before the work has returned; it is not released, so the
// next replica waits for the TTL; the context never ends.
func TestFault52_WorkThatIsSlowToStop(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const drain, stubborn = 3 * time.Second, 30 * time.Second
		var causes []error
		var left time.Duration
		var lease *lockcore.Lease
		work := func(ctx context.Context, run singleton.Run) error {
			if run.Attempt > 1 {
				return nil
			}
			lease = lockcore.FromContext(ctx)
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			time.Sleep(stubborn)
			left = lease.Remaining()
			return ctx.Err()
		}
		all := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			all[name] = f.replica(name, singleton.Config{Drain: drain})
			all[name].add("draw", "@every 1h", work, singleton.JobConfig{})
			all[name].run()
		}
		first := f.begun("draw", 1)[0]
		stopped := time.Now()
		all[first.replica].stop()
		if took := time.Since(stopped); took < drain+stubborn || took > drain+stubborn+time.Second {
			t.Errorf("Run returned after %v, want %v", took, drain+stubborn)
		}
		second := f.begun("draw", 2)[1]
		if second.replica == first.replica || !second.run.Tick.Equal(first.run.Tick) || second.run.Attempt != 2 || second.run.Token <= first.run.Token {
			t.Errorf("after %+v came %+v of %s", first.run, second.run, second.replica)
		}
		if wait := second.begin.Sub(stopped.Add(drain + stubborn)); wait < 0 || wait > 100*time.Millisecond {
			t.Errorf("the next began %v after the work had ended", wait)
		}
		if len(causes) != 1 || !errors.Is(causes[0], singleton.ErrStopping) {
			t.Errorf("the work's context ended with %v", causes)
		}
		if left <= 0 || lease.Remaining() != 0 {
			t.Errorf("the lease was valid for %v when the work returned, and is for %v after that", left, lease.Remaining())
		}
		f.alone("draw")
	})
}

// A shutdown in the pause before a retry releases the tick to another replica at once. If
// the last attempt has been made, the stopping replica records the tick.
// Mutants: the pause is waited for; the attempt after it counts although it never began; a
// last attempt is left to be recorded as unknown.
func TestShutdownBetweenAttempts(t *testing.T) {
	for _, most := range []int{1, 2} {
		inBubble(t, func(t *testing.T, f *fleet) {
			work := func(ctx context.Context, run singleton.Run) error {
				if run.Attempt > 1 {
					return nil
				}
				if most == 1 {
					<-ctx.Done()
				}
				return errors.New("boom")
			}
			all := map[string]*replica{}
			for _, name := range []string{"a", "b"} {
				all[name] = f.replica(name, singleton.Config{Drain: -1})
				all[name].add("draw", "@every 1h", work, singleton.JobConfig{MaxAttempts: most, Retry: 50 * time.Second})
				all[name].run()
			}
			first := f.begun("draw", 1)[0]
			f.Pass(time.Second)
			stopped := time.Now()
			all[first.replica].stop()
			if time.Since(stopped) > time.Second {
				t.Errorf("Run returned after %v", time.Since(stopped))
			}
			record := f.recorded("draw", 1)[0]
			switch {
			case most == 1 && (record.Outcome != singleton.OutcomeFailed || record.Holder != first.replica):
				t.Errorf("record is %+v, want the failure", record)
			case most == 2 && (record.Outcome != singleton.OutcomeSucceeded || record.Holder == first.replica || record.Attempt != 2):
				t.Errorf("record is %+v, want the other's success", record)
			}
			if time.Since(stopped) > 2*time.Second {
				t.Errorf("the next took %v", time.Since(stopped))
			}
		})
	}
}
