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
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
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

// A replica dies after the effect of its run and before the record: the same tick is run
// again, and one completion of it is accepted. The key of the run is the same, so that a marker makes the effect happen once.
// Mutants: the tick is forgotten; the late completion is accepted, too.
func TestFault59_CrashAfterTheEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		effects := map[string]int{}
		killed := make(chan string, 1)
		f.start("ab", "@every 1s", func(_ context.Context, run singleton.Run) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			effects[run.Key()]++
			if len(effects) == 1 && run.Attempt == 1 {
				killed <- run.Holder
				f.all[run.Holder].die()
			}
			return nil
		}, singleton.JobConfig{})
		name := <-killed
		f.recorded("draw", 1)
		f.all[name].net.Heal() // its completion arrives late
		f.recorded("draw", 3)
		first := f.book.all()[0]
		entries := f.ticks("draw")[first.run.Tick.UnixMilli()]
		if len(entries) != 2 || entries[1].run.Attempt != 2 || entries[1].replica == name {
			t.Errorf("the tick was run as %+v", entries)
		}
		if record := f.ended("draw")[first.run.Tick.UnixMilli()]; record.Holder == name || record.Attempt != 2 {
			t.Errorf("record is %+v", record)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		testenv.Equal(t, "effects of the run's key", effects[first.run.Key()], 2)
	})
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

// Class S: requests and replies are lost, duplicated or late.

// The reply to a claim or to a completion is lost, or the request is sent twice: the tick is run
// once nevertheless, at the first attempt, and recorded once. Other faults of a connection are
// tested in lockcore, and repeated requests in the ledger.
// Mutants: a repeated claim gets "busy" because of its own record; it counts as an attempt; a
// repeated completion gets "superseded"; the work is repeated; a second entry is written.
func TestFault24_28_29_ALostAnswer(t *testing.T) {
	for _, script := range []string{"claim", "complete"} {
		for _, kind := range []string{lockcoretest.SwallowReply, lockcoretest.DuplicateRequest} {
			t.Run(script+" "+kind, func(t *testing.T) {
				onBoth(t, func(t *testing.T, f *fleet) {
					r := f.start("a", "@every 200ms", nil, singleton.JobConfig{}, singleton.Config{TTL: f.ttl(time.Second)})["a"]
					f.recorded("draw", 1)
					rule := r.net.Inject(t, lockcoretest.Fault{Kind: kind, Match: request(script), Count: 2})
					f.Until("the fault was injected twice", func() bool { return rule.Fired() == 2 })
					f.recorded("draw", len(f.runs("draw"))+2)
					f.ranOnce("draw")
					f.ended("draw")
					f.proven("draw", parsed(t, "@every 200ms"))
					f.log.Lines(t, 0, "another replica has taken")
				})
			})
		}
	}
}

// Claims arrive after they were abandoned: they must not hold the tick for an unused TTL,
// nor count as attempts.
// Mutant: no tombstone is written, or it is not checked.
func TestFault13_ClaimsThatComeLate(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		all := f.start("ab", "@every 10m", nil, singleton.JobConfig{MaxAttempts: 1}, singleton.Config{TTL: time.Minute})
		a, b := all["a"], all["b"]
		f.recorded("draw", 1)
		f.Pass(time.Minute) // the servers know the scripts now
		away := b.net.Partition()
		late := a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: request("claim")})
		f.Until("claims are held back", func() bool { return late.Fired() >= 1 })
		f.Until("they were abandoned", func() bool { return len(f.Raw.Keys(t.Context(), f.key("draw", "tomb:*")).Val()) >= 2 })
		held := late.Fired()
		late.Lift()
		f.Pass(100 * time.Millisecond)
		b.net.Heal()
		given := time.Now()
		record := f.recorded("draw", 2)[1]
		if took := time.Since(given); took > 10*time.Second || record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 1 {
			t.Errorf("after %v the record is %+v", took, record)
		}
		f.ranOnce("draw")
		lockcoretest.MustFire(t, away)
		t.Logf("%d claims came late", held)
	})
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
