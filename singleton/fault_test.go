package singleton_test

import (
	"context"
	"testing"
	"time"

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
// again, and one completion of it is accepted. Here the key of the run makes the effect
// happen once.
// Mutants: the tick is forgotten; the late completion is accepted, too.
func TestFault59_CrashAfterTheEffect(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		effects := map[string]int{}
		fleet := map[string]*replica{}
		killed := make(chan string, 1)
		work := func(_ context.Context, run singleton.Run) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if effects[run.Key()] == 0 {
				effects[run.Key()]++ // like a marker in the same transaction
			}
			if len(effects) == 1 && run.Attempt == 1 {
				killed <- run.Holder
				fleet[run.Holder].die()
			}
			return nil
		}
		for _, name := range []string{"a", "b"} {
			r := f.replica(name, singleton.Config{})
			r.add("draw", "@every 1s", work, singleton.JobConfig{})
			fleet[name] = r
		}
		for _, r := range fleet {
			r.run()
		}
		name := <-killed
		f.recorded("draw", 1)
		fleet[name].net.Heal() // its completion arrives late
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
		if n := effects[first.run.Key()]; n != 1 {
			t.Errorf("the effect came about %d times", n)
		}
		t.Logf("%d crash between effect and record", 1)
	})
}

// All replicas were down for a thousand ticks: each tick is accounted for, and those that
// CatchUp selects are run.
// Mutants: the missed ticks are dropped without a record; all of them are run; each skip is
// its own entry.
func TestFault58_AThousandMissedTicks(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  singleton.JobConfig
		late int // ticks run of those missed
	}{
		{"latest", singleton.JobConfig{}, 1},
		{"all", singleton.JobConfig{CatchUp: singleton.CatchUpAll}, 100},
		{"none", singleton.JobConfig{CatchUp: singleton.CatchUpNone}, 0},
		{"deadline", singleton.JobConfig{CatchUp: singleton.CatchUpAll, StartingDeadline: 10*time.Minute + 30*time.Second}, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				a := f.replica("a", singleton.Config{})
				a.add("draw", "@every 1m", nil, c.cfg)
				a.run()
				f.recorded("draw", 1)
				a.stop()
				time.Sleep(1000*time.Minute + 15*time.Second) // not near a tick
				back := time.Now()
				for _, name := range []string{"b", "c"} {
					r := f.replica(name, singleton.Config{})
					r.add("draw", "@every 1m", nil, c.cfg)
					r.run()
				}
				f.Pass(20 * time.Second)
				late := 0
				for _, e := range f.book.all()[1:] {
					if e.run.Tick.Before(back) {
						late++
					}
				}
				if late != c.late {
					t.Errorf("%d missed ticks were run, want %d", late, c.late)
				}
				f.Pass(2 * time.Minute)
				f.ranOnce("draw")
				if n := f.proven("draw", every(t, time.Minute)); n < 1001 {
					t.Errorf("the ledger knows of %d ticks", n)
				}
				skips, skipped := 0, 0
				for _, r := range f.runs("draw") {
					if r.Count > 0 {
						skips++
						skipped += r.Count
						want := "missed"
						if c.name == "deadline" {
							want = "deadline"
						}
						if r.Error != want {
							t.Errorf("skipped for %q", r.Error)
						}
					}
				}
				if skips != 1 || skipped != 1000-c.late {
					t.Errorf("%d skips of %d ticks, want one of %d", skips, skipped, 1000-c.late)
				}
				t.Logf("%d ticks were missed", 1000)
			})
		})
	}
}

// After an outage, CatchUpAll runs as many ticks as the history has entries by default, or more. The
// entry about the skipped ticks stays in the history, and their number is logged.
// Mutant: the runs that are caught up push it out.
func TestFault114_ACatchUpKeepsItsSkips(t *testing.T) {
	for _, keep := range []int{0, 1} {
		inBubble(t, func(t *testing.T, f *fleet) {
			cfg := singleton.JobConfig{CatchUp: singleton.CatchUpAll, KeepRuns: keep}
			a := f.replica("a", singleton.Config{})
			a.add("draw", "@every 1m", nil, cfg)
			a.run()
			f.recorded("draw", 1)
			a.stop()
			time.Sleep(500*time.Minute + 15*time.Second)
			b := f.replica("b", singleton.Config{})
			b.add("draw", "@every 1m", nil, cfg)
			b.run()
			f.begun("draw", 101)
			f.Pass(time.Second)
			skipped := 0
			for _, r := range f.runs("draw") {
				skipped += r.Count
			}
			if skipped != 400 {
				t.Errorf("KeepRuns %d: the history has %d skipped ticks, want 400", keep, skipped)
			}
			if n := f.log.Count(`"ticks skipped"`, `"count"=400`, `"reason"="missed"`); n != 1 {
				t.Errorf("KeepRuns %d: logged %d times", keep, n)
			}
		})
	}
}
