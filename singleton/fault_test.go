package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// ranOnce asserts that every tick of the book was run once, at the first attempt.
func (f *fleet) ranOnce(job string) {
	f.Helper()
	for tick, entries := range f.ticks(job) {
		if len(entries) != 1 || entries[0].run.Attempt != 1 {
			f.Errorf("tick %v was run %d times: %+v", time.UnixMilli(tick).UTC(), len(entries), entries)
		}
	}
}

// All replicas were down for a thousand ticks: each tick is accounted for, and those that
// CatchUp selects are run. The entry about the others stays in the history, however short that is.
// Mutants: the missed ticks are dropped without a record; all of them are run; each skip is
// its own entry; the runs that are caught up push it out.
func TestFault58_114_AThousandMissedTicks(t *testing.T) {
	for _, c := range []struct {
		cfg    singleton.JobConfig
		late   int // ticks run of those missed
		reason string
	}{
		{singleton.JobConfig{}, 1, "missed"},
		{singleton.JobConfig{CatchUp: singleton.CatchUpAll}, 100, "missed"},
		{singleton.JobConfig{CatchUp: singleton.CatchUpAll, KeepRuns: 1}, 100, "missed"},
		{singleton.JobConfig{StartingDeadline: 10 * time.Second}, 0, "deadline"},
		{singleton.JobConfig{CatchUp: singleton.CatchUpAll, StartingDeadline: 10*time.Minute + 30*time.Second}, 11, "deadline"},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			f.start("a", "@every 1m", nil, c.cfg)
			f.recorded("draw", 1)
			f.all["a"].stop()
			time.Sleep(1000*time.Minute + 15*time.Second) // not near a tick
			back := time.Now()
			f.start("bc", "@every 1m", nil, c.cfg)
			f.Pass(20 * time.Second)
			late := 0
			for _, e := range f.book.all()[1:] {
				if e.run.Tick.Before(back) {
					late++
				}
			}
			testenv.Equal(t, "missed ticks that were run", late, c.late)
			f.ranOnce("draw")
			if c.cfg.KeepRuns == 0 && f.proven("draw", parsed(t, "@every 1m")) < 1001 {
				t.Errorf("%+v: the ledger knows of too few ticks", c.cfg)
			}
			skips := slices.DeleteFunc(f.runs("draw"), func(r singleton.HistoryEntry) bool { return r.Count == 0 })
			if len(skips) != 1 || skips[0].Count != 1000-c.late || skips[0].Error != c.reason {
				t.Errorf("%+v: skipped are %+v, want %d ticks", c.cfg, skips, 1000-c.late)
			}
			f.log.Lines(t, 1, `"ticks skipped"`, fmt.Sprintf(`"count"=%d`, 1000-c.late), c.reason)
		})
	}
}

// The server is away from the middle of a run on. The ledger has how long the work took, and the ticks that
// were due after it as missed, also if the lease had ended meanwhile, if the work failed, and if an operator
// requests a run as soon as the server is back. If another attempt follows, the run has not ended.
// Mutants: a run or an attempt ends when the server records it.
func TestFault72_AnOutageIsNoWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl    time.Duration
		err    error
		config singleton.JobConfig
		reason string
	}{
		"within the TTL": {time.Minute, nil, singleton.JobConfig{}, "missed"},
		"over the TTL":   {2 * time.Second, nil, singleton.JobConfig{}, "missed"},
		"failed":         {time.Minute, errBroken, singleton.JobConfig{MaxAttempts: 1}, "missed"},
		"after attempts": {time.Minute, errBroken, singleton.JobConfig{Retry: 100 * time.Millisecond}, "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				var begun atomic.Int64
				f.start("a", "@every 1s", func(ctx context.Context, run singleton.Run) error {
					if begun.Add(1) == 3 {
						f.Bubble.Stop()
						time.AfterFunc(7100*time.Millisecond, func() { testenv.Must(f, f.Bubble.Start()) })
					}
					err := sleep(300*time.Millisecond)(ctx, run)
					if begun.Load() == 3 {
						err = errors.Join(err, c.err)
					}
					return err
				}, c.config, singleton.Config{TTL: c.ttl})
				f.Until("the server is away", func() bool { return begun.Load() == 3 })
				f.Until("the server is back", func() bool { return f.Raw.Ping(t.Context()).Err() == nil })
				if c.reason == "missed" { // otherwise the run that is requested would be the newest one
					_, err := f.job("draw").Trigger(t.Context())
					testenv.Must(f, err)
				}
				f.Pass(5 * time.Second)
				skipped := 0
				for _, e := range f.runs("draw") {
					for _, a := range e.Attempts {
						if took := a.End.Sub(a.Start); took < 290*time.Millisecond || took > 310*time.Millisecond {
							t.Errorf("an attempt took %v: %+v", took, e)
						}
					}
					if skipped += e.Count; e.Count > 0 && e.Error != c.reason {
						t.Errorf("skipped: %+v", e)
					}
				}
				if skipped < 5 || skipped > 8 {
					t.Errorf("%d ticks were skipped", skipped)
				}
				if n, sum := f.series("attempt_duration_seconds"), f.sum("attempt_duration_seconds"); sum < 0.29*n || sum > 0.31*n {
					t.Errorf("%v attempts took %v s", n, sum)
				}
			})
		})
	}
}
