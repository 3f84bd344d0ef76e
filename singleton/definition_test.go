package singleton_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A new version crashes again and again: at start, when its probe kills it, or in its first run. If it
// crashes at start, the old one runs each tick. Otherwise the new one acts while it lives, and no tick
// is late for long.
// Mutants: a start is enough to take over; the old version waits for the dead one.
func TestFault79_AVersionThatCrashesAgainAndAgain(t *testing.T) {
	const over = 20 * time.Minute
	for name, c := range map[string]struct {
		lives                time.Duration
		backOff, inRun, acts bool
	}{
		"at start":         {2 * time.Second, true, false, false},
		"by its probe":     {90 * time.Second, false, false, true},
		"in its first run": {30 * time.Minute, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				f.start("ab", "* * * * *", nil, singleton.JobConfig{}, singleton.Config{TTL: 10 * time.Second})
				f.recorded("draw", 2)
				begin := time.Now()
				for n := range 1000 {
					if time.Since(begin) > over {
						break
					}
					r := f.replica(fmt.Sprintf("bad-%d", n), singleton.Config{TTL: 10 * time.Second})
					r.add("draw", "* * * * *", func(ctx context.Context, _ singleton.Run) error {
						if c.inRun {
							r.die()
							<-ctx.Done()
						}
						return ctx.Err()
					}, singleton.JobConfig{Revision: 2})
					r.run()
					for born := time.Now(); !r.dead.Load() && time.Since(born) < c.lives; {
						f.Pass(time.Second)
					}
					r.die()
					r.stop()
					pause := time.Second
					if c.backOff {
						pause = min(10*time.Second<<min(n, 5), 5*time.Minute)
					}
					f.Pass(pause)
				}
				f.Pass(40 * time.Second)
				tried := 0
				for tick, entries := range f.ticks("draw") {
					at := time.UnixMilli(tick)
					if at.Before(begin) {
						continue
					}
					last := entries[len(entries)-1]
					if late := last.begin.Sub(at); late > 40*time.Second {
						t.Errorf("the tick of %v is run %v late, by %s", at, late, last.replica)
					}
					if strings.HasPrefix(entries[0].replica, "bad") {
						tried++
					}
				}
				runs := f.ended("draw")
				for at := begin.Truncate(time.Minute).Add(time.Minute); at.Before(begin.Add(over)); at = at.Add(time.Minute) {
					if r := runs[at.UnixMilli()]; r.Outcome != singleton.OutcomeSucceeded {
						t.Errorf("the tick of %v is recorded as %+v", at, r)
					}
				}
				if (tried > 0) != c.acts {
					t.Errorf("the version that crashes was given %d ticks", tried)
				}
				f.proven("draw", parsed(t, "* * * * *"))
				f.alone("draw")
			})
		})
	}
}

// accounted asserts that each tick of the schedule in (from, to] was either run or is in the time of
// a change of the schedule, and returns how many were run.
func (f *fleet) accounted(schedule schedule.Schedule, from, to time.Time) (ran int) {
	f.Helper()
	for at := schedule.Next(from); !at.After(to); at = schedule.Next(at) {
		listed := 0
		for _, r := range f.runs("draw") {
			switch {
			case r.Tick.Equal(at) && r.Last.IsZero():
				ran++
				listed++
			case !r.Last.IsZero() && !at.Before(r.Tick) && !at.After(r.Last):
				listed++
				if (r.Error == "rescheduled") != (r.Count == 0) {
					f.Errorf("the tick of %v is skipped in %+v", at, r)
				}
			}
		}
		if listed != 1 {
			f.Errorf("the tick of %v is listed %d times", at, listed)
		}
	}
	return ran
}

// A schedule changes while a draw takes long, while replicas run, or after days without any. Each tick of
// the former schedule ran, or is in the time of the one entry for the change; each one of the new
// schedule runs from then on.
// Mutants: the former schedule continues; the change has no entry; the new one begins earlier.
func TestFault80_AScheduleChanges(t *testing.T) {
	const noon = "0 12 * * *"
	cst := time.FixedZone("CST", 8*3600)
	for name, c := range map[string]struct {
		former string
		takes  time.Duration // a draw
		away   time.Duration // how long no replica is alive; 0: the old one continues
		dies   bool
	}{
		"side by side":         {former: "@every 10s"},
		"while a tick is late": {former: "@every 1s", takes: 6 * time.Second},
		"after days":           {former: noon, away: 3*24*time.Hour + 30*time.Second},
		"after days, one died": {former: noon, away: 3*24*time.Hour + 30*time.Second, dies: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				a := f.replica("old", singleton.Config{TTL: 10 * time.Second})
				a.add("draw", c.former, sleep(c.takes), singleton.JobConfig{TimeZone: cst})
				former, err := schedule.Parse(c.former, schedule.Config{TimeZone: cst, Name: "draw"})
				testenv.Must(t, err)
				a.run()
				from := f.recorded("draw", 1)[0].Tick.Add(-time.Millisecond)
				if c.away > 0 {
					if c.dies {
						a.die()
					}
					a.stop()
					f.Pass(c.away)
				}
				reg := prometheus.NewRegistry()
				b := f.replica("new", singleton.Config{}, reg)
				b.add("draw", "@every 20s", nil, singleton.JobConfig{})
				b.run()
				f.Until("the new one acts", func() bool { return f.log.Count("schedule changed; ticks that were due") > 0 })
				f.Pass(2 * time.Minute)
				runs := f.runs("draw")
				i := slices.IndexFunc(runs, func(r singleton.HistoryEntry) bool { return r.Error == "rescheduled" })
				if i < 0 {
					t.Fatalf("the history is %+v", runs)
				}
				changed := runs[i].Last
				if n := f.accounted(former, from, changed); n < 1 {
					t.Errorf("%d ticks of the former schedule were run", n)
				}
				if n := f.accounted(parsed(t, "@every 20s"), changed, time.Now().Add(-20*time.Second)); n < 3 {
					t.Errorf("%d ticks of the new schedule were run", n)
				}
				if n, _ := metric(t, reg, "noonlock_job_schedule_changes_total", "name", "draw"); n != 1 {
					t.Errorf("%v changes are counted", n)
				}
				if st := f.status("draw"); st.Schedule != "@every 20s" {
					t.Errorf("the schedule is %q", st.Schedule)
				}
				f.ranOnce("draw")
			})
		})
	}
}

// versioned returns a replica with its own definition.
func (f *fleet) versioned(name, schedule string, cfg singleton.JobConfig) *replica {
	f.Helper()
	r := f.replica(name, singleton.Config{})
	r.add("draw", schedule, nil, cfg)
	r.run()
	f.Pass(10 * time.Millisecond) // so the next one starts after it
	return r
}

// A new version is rolled out and rolled back. The version whose oldest replica started last claims
// when it has lived for some seconds; the others stop and log that. When the newest replicas are
// gone, the remaining ones continue at once. No tick is run twice, and none is missed.
// Mutants: the older version continues; no replica continues; the lapse is waited for although the last one has deregistered.
func TestRollingDeploy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		version := func(name string, revision int) *replica {
			return f.versioned(name, "@every 1s", singleton.JobConfig{Revision: revision})
		}
		runs := func(when, name string) entry {
			t.Helper()
			n := len(f.book.all())
			entries := f.begun("draw", n+5)[n:]
			for _, e := range entries {
				if e.replica != name {
					t.Errorf("%s: a tick was run by %s", when, e.replica)
				}
			}
			return entries[0]
		}
		a1, a2 := version("old-1", 1), version("old-2", 1)
		f.begun("draw", 3)
		b1 := version("new-1", 2)
		f.Pass(6 * time.Second)
		runs("after the new version has started", "new-1")
		if got := f.log.Count("this replica claims no ticks"); got != 2 {
			t.Errorf("%d replicas said that they stop claiming", got)
		}
		a1.stop()
		f.Pass(5 * time.Second)
		st := f.status("draw")
		if d := st.Definitions; st.Replicas != 1 || len(d) != 2 || !d[0].Acts || d[0].Replicas[0].Identity != "new-1" || len(d[1].Replicas) != 1 || d[1].Replicas[0].Identity != "old-2" {
			t.Errorf("one of each version: %+v", st)
		}
		b1.stop()
		stopped := time.Now()
		if took := runs("after the new version was withdrawn", "old-2").begin.Sub(stopped); took > 1500*time.Millisecond {
			t.Errorf("the old version continued after %v", took)
		}
		version("new-2", 2)
		f.Pass(6 * time.Second)
		// All of the old version are replaced, so a rollback is a new version, too.
		a2.stop()
		version("old-3", 1)
		f.Pass(6 * time.Second)
		runs("after the rollback", "old-3")
		f.ranOnce("draw")
		f.proven("draw", parsed(t, "@every 1s"))
	})
}

// The replicas of the old schedule claim a tick every 100 ms, and a round trip of the replica with the
// new schedule takes longer. The new schedule takes over in time, and each due tick of the old one
// has run or is recorded. A replica that starts and dies again does not stop the ticks for long.
// Mutants: no tick waits; the ticks wait for each look of a replica that never takes over.
func TestANewScheduleBesideFastClaims(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inBubble(t, func(t *testing.T, f *fleet) {
			for _, name := range []string{"a", "b"} {
				f.versioned(name, "@every 100ms", singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			}
			f.begun("draw", 100)
			c := f.replica("c", singleton.Config{})
			slow := c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 120 * time.Millisecond})
			c.add("draw", "@every 1m", nil, singleton.JobConfig{})
			c.run()
			if dies {
				f.Pass(5100 * time.Millisecond)
				c.die()
				n := len(f.book.all())
				f.Pass(20 * time.Second)
				if now := len(f.book.all()); now < n+150 {
					t.Errorf("%d ticks of the old schedule in 20 s", now-n)
				}
				return
			}
			f.Pass(10 * time.Second)
			job := f.job("draw")
			st, err := job.Status(t.Context())
			if err != nil || st.Replicas != 1 {
				t.Errorf("after 10 s the status is %+v, %v", st, err)
			}
			f.Pass(2 * time.Minute)
			entries := f.book.all()
			if last := entries[len(entries)-1]; last.replica != "c" {
				t.Errorf("the last run is %+v", last)
			}
			lockcoretest.MustFire(t, slow)
		})
	}
}

// Two programs use one prefix and one job name. If any part of their definitions differs,
// both log and count that. If none does, they are replicas of one job: one of them runs each
// tick, which cannot be noticed. A Revision for each program distinguishes them.
// Mutants: only the one that claims nothing does; it is logged at each look.
func TestFault78_TwoProgramsWithOneJob(t *testing.T) {
	for _, c := range []struct {
		cfg       singleton.JobConfig
		conflicts int
	}{
		{singleton.JobConfig{Revision: 2}, 3},
		{singleton.JobConfig{KeepRuns: 7}, 0},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			regs := map[string]*prometheus.Registry{}
			for name, cfg := range map[string]singleton.JobConfig{"shop": {}, "bank": c.cfg} {
				regs[name] = prometheus.NewRegistry()
				r := f.replica(name, singleton.Config{}, regs[name])
				r.add("draw", "*/5 * * * *", nil, cfg)
				r.run()
			}
			for _, step := range []struct {
				after time.Duration
				want  int
			}{{9 * time.Minute, 0}, {30 * time.Minute, c.conflicts}} {
				f.Pass(step.after)
				if n := f.log.Count("job has two definitions"); n != step.want*len(regs) {
					t.Errorf("%+v: it is logged %d times, want %d:\n%s", c.cfg, n, step.want*len(regs), &f.log)
				}
				for name, reg := range regs {
					if n, _ := metric(t, reg, "noonlock_job_definition_conflicts_total", "name", "draw"); int(n) != step.want {
						t.Errorf("%+v: %s counts %v conflicts, want %d", c.cfg, name, n, step.want)
					}
				}
			}
			f.ranOnce("draw")
		})
	}
}
