package singleton_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// costs asserts that each tick since then succeeded once, and returns the greatest lateness of the attempt that did. It
// shows the figures of a deploy.
func (f *fleet) costs(spec string, from time.Time) (latest time.Duration) {
	f.Helper()
	f.Pass(time.Minute)
	to := time.Now().Add(-20 * time.Second)
	runs, begun, n, lost := f.ended("draw"), f.ticks("draw"), 0, 0
	for at := parsed(f, spec).Next(from); !at.After(to); at = parsed(f, spec).Next(at) {
		n++
		if r := runs[at.UnixMilli()]; r.Outcome != singleton.OutcomeSucceeded {
			lost++
			f.Errorf("the tick of %v is recorded as %+v", at, r)
			continue
		}
		entries := begun[at.UnixMilli()]
		latest = max(latest, entries[len(entries)-1].begin.Sub(at))
	}
	f.Logf("%d ticks, %d lost, at most %v late", n, lost, latest.Round(10*time.Millisecond))
	f.proven("draw", parsed(f, spec))
	f.alone("draw")
	return latest
}

// A new version ran well once beside three healthy replicas of the old one, and then dies soon after each start, or its
// work kills its process. No tick is lost, and each is late by at most the lapse of a replica and a look, or by the TTL
// and a look. A version that dies within 5 s is given no tick.
// Mutants: a start is enough to act; a version that ran well once acts as long as it restarts; a death is not charged.
func TestFault79_146_AVersionThatDiesAgainAndAgain(t *testing.T) {
	over := time.Duration(testenv.Size(10, 30)) * time.Minute
	cfg := singleton.Config{TTL: 10 * time.Second}
	poison := func(r *replica) func(context.Context, singleton.Run) error {
		return func(ctx context.Context, _ singleton.Run) error {
			r.die()
			<-ctx.Done()
			return ctx.Err()
		}
	}
	type row struct {
		lives, away time.Duration
		well, kills bool // it ran well once; its work kills it
	}
	rows := []row{{2 * time.Second, 10 * time.Second, false, false}, {time.Hour, time.Second, true, true}, {time.Hour, 14 * time.Second, true, true}}
	for _, lives := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 6 * time.Second, 15 * time.Second} {
		for _, away := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 30 * time.Second} {
			rows = append(rows, row{lives, away, true, false})
		}
	}
	for _, c := range rows {
		t.Run(fmt.Sprintf("lives %v, away %v, ran well %v, by its work %v", c.lives, c.away, c.well, c.kills), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				f.start("abc", "* * * * *", sleep(time.Second), singleton.JobConfig{}, cfg)
				f.recorded("draw", 2)
				begin := time.Now()
				for n := 0; time.Since(begin) < over; n++ {
					r, lives, work := f.replica(fmt.Sprintf("new-%d", n), cfg), c.lives, sleep(time.Second)
					switch {
					case n == 0 && c.well:
						lives = 3 * time.Minute
					case c.kills:
						work = poison(r)
					}
					r.add("draw", "* * * * *", work, singleton.JobConfig{Revision: 2})
					r.run()
					for born := time.Now(); !r.dead.Load() && time.Since(born) < lives; {
						f.Pass(500 * time.Millisecond)
					}
					r.die()
					r.stop()
					f.Pass(c.away)
				}
				most := 20 * time.Second
				if c.kills {
					most = 15 * time.Second
				}
				f.within("a tick was run", f.costs("* * * * *", begin), most)
				for _, e := range f.book.all() {
					if !c.well && strings.HasPrefix(e.replica, "new") {
						t.Errorf("%s runs %v", e.replica, e.run.Tick)
					}
				}
			})
		})
	}
}

// A schedule changes while a draw takes long, while replicas run, or after days without any. Ticks of the former schedule
// ran until the time of the one entry for the change, and each one of the new schedule runs from then on. If a tick is due
// at the change that both texts have, it is the first of these. Which time the entry has, the ledger tests.
// Mutants: the former schedule continues; the change has no entry; the new one begins earlier; the shared tick is skipped;
// the former schedule is not read; a tick of one schedule only is due.
func TestFault80_147_AScheduleChanges(t *testing.T) {
	const noon, seldom = "0 12 * * *", "*/20 * * * *"
	cst := time.FixedZone("CST", 8*3600)
	for name, c := range map[string]struct {
		former, next string
		takes        time.Duration // a draw
		away         time.Duration // how long no replica is alive. With 0, the old one continues
		dies         bool
		shared       bool // the new replica starts before a full hour, when a tick of both schedules is due
	}{
		"side by side":                           {former: "@every 10s"},
		"while a tick is late":                   {former: "@every 1s", takes: 6 * time.Second},
		"after days":                             {former: noon, away: 3*24*time.Hour + 30*time.Second},
		"after days, one died":                   {former: noon, away: 3*24*time.Hour + 30*time.Second, dies: true},
		"after a full stop, shared tick":         {former: "0 * * * *", next: seldom, away: time.Second, shared: true},
		"while a run is long, shared tick":       {former: "* * * * *", next: seldom, takes: 65 * time.Second, shared: true},
		"by another time zone, with shared tick": {former: "0 * * * *", next: "CRON_TZ=Asia/Kolkata */30 * * * *", away: time.Second, shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				c.next = cmp.Or(c.next, "@every 20s")
				every := parsed(t, c.next)
				a := f.replica("old", singleton.Config{TTL: 10 * time.Second})
				a.add("draw", c.former, sleep(c.takes), singleton.JobConfig{TimeZone: cst})
				a.run()
				f.recorded("draw", 1)
				due := time.Now().Truncate(time.Hour).Add(time.Hour)
				if c.shared {
					f.Pass(time.Until(due) - 3*time.Second)
				}
				if c.away > 0 {
					if c.dies {
						a.die()
					}
					a.stop()
					f.Pass(c.away)
				}
				f.versioned("new", c.next, singleton.JobConfig{})
				f.Until("the new one acts", func() bool { return f.log.Count("schedule changed; ticks that were due") > 0 })
				f.Pass(2 * time.Minute)
				runs := f.runs("draw")
				i := slices.IndexFunc(runs, func(r singleton.HistoryEntry) bool { return r.Error == "rescheduled" })
				if i < 0 {
					t.Fatalf("the history is %+v", runs)
				}
				ended, n := f.ended("draw"), 0
				for at := every.Next(runs[i].Last); at.Before(time.Now().Add(-20 * time.Second)); at = every.Next(at) {
					if n++; ended[at.UnixMilli()].Outcome != singleton.OutcomeSucceeded {
						t.Errorf("the tick of %v of the new schedule is recorded as %+v", at, ended[at.UnixMilli()])
					}
				}
				if i == 0 || n == 0 || runs[0].Outcome != singleton.OutcomeSucceeded {
					t.Errorf("%d ticks of the new schedule, in the history %+v", n, runs)
				}
				if c.shared && (!runs[i].Last.Equal(due.Add(-time.Millisecond)) || f.ticks("draw")[due.UnixMilli()][0].replica != "new") {
					t.Errorf("the tick of both at %v: %+v, in the history %+v", due, f.ticks("draw")[due.UnixMilli()], runs)
				}
				f.counts(1, "schedule_changes_total")
				testenv.Equal(t, "the schedule", f.status("draw").Schedule, every.String())
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

// What a deploy costs whose replicas stop and start.
func TestWhatADeployCosts(t *testing.T) {
	cfg := singleton.JobConfig{CatchUp: singleton.CatchUpAll, KeepRuns: 1000}
	for name, c := range map[string]struct {
		spec     string
		old, new int // replicas
		deploy   func(f *fleet, version func(revision, replicas int))
		late     time.Duration
	}{
		"two versions for days": {"@every 10m", 1, 1, func(f *fleet, _ func(int, int)) {
			f.Pass(time.Duration(testenv.Size(2, 48)) * time.Hour)
		}, 10 * time.Millisecond},
		"all stop or die, and start 2 s later": {"@every 1s", 3, 2, func(f *fleet, version func(int, int)) {
			f.each(func(r *replica) {
				if strings.HasPrefix(r.name, "2") {
					r.die()
				}
				r.stop()
			})
			f.Pass(2 * time.Second)
			version(1, 3)
			version(2, 2)
		}, 3 * time.Second},
		"the only replica stops, and the new version starts": {"@every 1s", 1, 0, func(f *fleet, version func(int, int)) {
			f.each((*replica).stop)
			version(2, 1)
		}, 6 * time.Second},
		"the new version acts, and is withdrawn": {"@every 1s", 2, 2, func(f *fleet, _ func(int, int)) {
			f.Pass(6 * time.Second)
			testenv.Equal(f, "the replica of the newest run is one of the new version", f.newest().replica[:1], "2")
			f.log.Lines(f, 2, "this replica claims no ticks")
			if d := f.status("draw").Definitions; len(d) != 2 || !d[0].Acts || len(d[0].Replicas) != 2 || d[1].Acts || len(d[1].Replicas) != 2 {
				f.Errorf("two of each version: %+v", d)
			}
			f.each(func(r *replica) {
				if strings.HasPrefix(r.name, "2") {
					r.stop()
				}
			})
		}, 1500 * time.Millisecond},
		"the only replica gets the new version": {"@every 1s", 1, 0, func(f *fleet, _ func(int, int)) {
			later := cfg
			later.Revision = 2
			testenv.Must(f, f.all["1-0"].runner.Update("draw", "@every 1s", f.all["1-0"].noted(nil), later))
		}, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(_ *testing.T, f *fleet) {
				version := func(revision, replicas int) {
					cfg := cfg
					cfg.Revision = revision
					for range replicas {
						f.versioned(fmt.Sprintf("%d-%d", revision, len(f.all)), c.spec, cfg)
					}
				}
				version(1, c.old)
				begin := f.recorded("draw", 2)[0].Tick
				f.Pass(6 * time.Second)
				version(2, c.new)
				c.deploy(f, version)
				f.within("a tick was run", f.costs(c.spec, begin), c.late)
			})
		})
	}
}

// The replicas of the old schedule claim a tick every 100 ms, and a round trip of the replica with the
// new schedule takes longer. The new schedule takes over in time, and each due tick of the old one
// has run or is recorded.
// Mutants: the ledger must stand still while the new replica looks.
func TestANewScheduleBesideFastClaims(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"a", "b"} {
			f.versioned(name, "@every 100ms", singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		}
		f.begun("draw", 100)
		c := f.replica("c", singleton.Config{})
		slow := c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 120 * time.Millisecond})
		c.add("draw", "@every 1m", nil, singleton.JobConfig{})
		c.run()
		f.Pass(10 * time.Second)
		testenv.Equal(t, "replicas after 10 s", f.status("draw").Replicas, 1)
		f.Pass(2 * time.Minute)
		testenv.Equal(t, "the replica of the newest run", f.newest().replica, "c")
		lockcoretest.MustFire(t, slow)
	})
}

// Two programs use one prefix and one job name. If any part of their definitions differs,
// both log and count that. If none does, whatever limits they have, they are replicas of one job: one of them runs each
// tick, which cannot be noticed. A Revision for each program distinguishes them.
// Mutants: only the one that claims nothing does; it is logged at each look.
func TestFault78_TwoProgramsWithOneJob(t *testing.T) {
	for _, c := range []struct {
		cfg       singleton.JobConfig
		conflicts int
	}{
		{singleton.JobConfig{Revision: 2}, 3},
		{singleton.JobConfig{KeepRuns: 7, MaxAttempts: 2, Retry: time.Minute, Timeout: time.Minute, StartingDeadline: time.Hour}, 0},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			f.apart = true
			f.start("a", "*/5 * * * *", nil, singleton.JobConfig{})
			f.start("b", "*/5 * * * *", nil, c.cfg)
			for _, step := range []struct {
				after time.Duration
				want  int
			}{{9 * time.Minute, 0}, {30 * time.Minute, c.conflicts}} {
				f.Pass(step.after)
				f.log.Lines(t, step.want*len(f.all), "job has two definitions")
				for name, r := range f.all {
					n, _ := testenv.Series(t, r.reg, "noonlock_job_definition_conflicts_total", "name", "draw")
					testenv.Equal(t, name+" counts conflicts", int(n), step.want)
				}
			}
			if st := f.status("draw"); (st.Replicas == 2) != (c.conflicts == 0) {
				t.Errorf("%+v: the status is %+v", c.cfg, st)
			}
			f.ranOnce("draw")
		})
	}
}
