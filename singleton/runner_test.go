package singleton_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// tokens asserts that the tokens of a job grow from attempt to attempt.
func tokens(f *fleet, job string) {
	f.Helper()
	var before uint64
	holder := ""
	for _, e := range f.book.all() {
		if e.run.Job != job {
			continue
		}
		if e.run.Token < before || e.run.Token == before && e.replica != holder {
			f.Errorf("token %d of %s after %d of %s", e.run.Token, e.replica, before, holder)
		}
		before, holder = e.run.Token, e.replica
	}
}

// The work gets the run that is in the ledger. No tick has the key of a triggered run.
func TestRunTellsWhatItIsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.start("h", "0 * * * *", nil, singleton.JobConfig{AllowOverlap: true})
		f.recorded("draw", 2)
		trigger := testenv.Call(f.job("draw").Trigger(t.Context())).Must(t)
		if third := f.begun("draw", 3)[2].run; third.RunID != trigger || !third.Triggered || third.Key() != fmt.Sprintf("draw@-%d", third.Tick.UnixMilli()) || !third.Marker().Overlap {
			t.Errorf("the triggered run %v is %+v", trigger, third)
		}
		entries := f.book.all()
		first, second := entries[0].run, entries[1].run
		noon := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)
		if !first.Tick.Equal(noon) || first.Tick.Location() != time.UTC || first.Job != "draw" || first.Attempt != 1 ||
			first.Holder != "h" || !first.LastSuccess.IsZero() || first.Token == 0 {
			t.Errorf("first run is %+v", first)
		}
		if !second.Tick.Equal(noon.Add(time.Hour)) || !second.LastSuccess.Equal(noon) || second.Token <= first.Token || second.Key() != fmt.Sprintf("draw@%d", second.Tick.UnixMilli()) {
			t.Errorf("second run is %+v", second)
		}
		f.within("the run began", entries[0].late(), 5*time.Millisecond)
		record := f.runs("draw")[0]
		if !record.Tick.Equal(noon) || record.Attempt != 1 || record.Holder != "h" || record.Token != first.Token ||
			record.Outcome != singleton.OutcomeSucceeded || record.Error != "" || record.Start.Before(noon) || record.End.Before(record.Start) {
			t.Errorf("record is %+v", record)
		}
	})
}

// Work that fails, panics, ends its goroutine or takes too long is retried with growing pauses and tokens, and then
// recorded as failed. A replica that knows no other one makes all attempts itself.
// Mutants: no retry; the attempt is not counted; it waits for others that are not there.
func TestFailuresAreRetriedAndRecorded(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		work func(ctx context.Context, run singleton.Run) error
		cfg  singleton.JobConfig
		says string
	}{
		{"error", func(context.Context, singleton.Run) error { return boom }, singleton.JobConfig{}, "boom"},
		{"panic", func(context.Context, singleton.Run) error { panic("boom") }, singleton.JobConfig{Retry: 2 * time.Second}, "panicked: boom"},
		{"exit", func(context.Context, singleton.Run) error { runtime.Goexit(); return nil }, singleton.JobConfig{}, "called runtime.Goexit"},
		{"timeout", sleep(time.Hour), singleton.JobConfig{Timeout: time.Second}, "timed out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				c.cfg.MaxAttempts = 3
				f.start("a", "@every 1m", c.work, c.cfg)
				record := f.recorded("draw", 1)[0]
				entries := f.book.all()
				if len(entries) != 3 {
					t.Fatalf("%d attempts, want 3", len(entries))
				}
				for i, e := range entries {
					if e.run.Attempt != i+1 || i > 0 && e.run.Token <= entries[i-1].run.Token || !e.run.Tick.Equal(entries[0].run.Tick) {
						t.Errorf("attempt %d is %+v on %s", i+1, e.run, e.replica)
					}
				}
				first := cmp.Or(c.cfg.Retry, time.Second)
				for i, want := range []time.Duration{first, 2 * first} {
					if got := entries[i+1].begin.Sub(entries[i].end); got < want*9/10 || got > want*11/10+5*time.Millisecond {
						t.Errorf("pause %d was %v, want about %v", i+1, got, want)
					}
				}
				if record.Outcome != singleton.OutcomeFailed || record.Attempt != 3 || !strings.Contains(record.Error, c.says) {
					t.Errorf("record is %+v", record)
				}
			})
		})
	}
}

// If the Client is closed, a Runner returns ErrClosed. The context of its work ends at once with that cause, without
// a drain, and Run waits for work that takes longer.
func TestRunnerOfAClosedClient(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{Logger: f.log.Info("")})
		r, err := singleton.NewRunner(c, singleton.Config{Drain: time.Hour})
		testenv.Must(t, err)
		causes := make(chan error, 1)
		testenv.Must(t, r.Add("draw", "@every 1m", func(ctx context.Context, _ singleton.Run) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(time.Minute)
			return ctx.Err()
		}, singleton.JobConfig{}))
		testenv.Must(t, r.Add("idle", "@yearly", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}))
		run := f.run(r.Run)
		f.Pass(90 * time.Second)
		begin := f.Clock()
		testenv.Must(t, c.Close(t.Context()))
		testenv.MustIs(t, <-causes, lockcore.ErrClosed)
		f.within("the context ended", f.Clock()-begin, time.Second)
		testenv.MustIs(t, run.result(), lockcore.ErrClosed)
		f.within("Run returned after the work", f.Clock()-begin-time.Minute, time.Second)
		testenv.MustIs(t, r.Run(t.Context()), lockcore.ErrClosed)
		f.log.Lines(t, 0, "failed to deregister replica")
	})
}
