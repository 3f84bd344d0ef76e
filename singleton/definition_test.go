package singleton_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// crashes runs a version that is started again and again. It lives for the first duration
// each time, and is restarted after the second one.
func (f *fleet) crashes(schedule string, work func(r *replica) func(context.Context, singleton.Run) error, over time.Duration, lives, pauses func(n int) time.Duration) {
	f.Helper()
	end := time.Now().Add(over)
	for n := 1; time.Now().Before(end); n++ {
		r := f.replica(fmt.Sprintf("bad-%d", n), singleton.Config{TTL: 10 * time.Second})
		var do func(context.Context, singleton.Run) error
		if work != nil {
			do = work(r)
		}
		r.add("draw", schedule, do, singleton.JobConfig{Revision: "bad"})
		r.run()
		for died := time.Now().Add(min(lives(n), time.Until(end))); !r.dead.Load() && time.Now().Before(died); {
			f.Pass(min(10*time.Second, time.Until(died)))
		}
		if !r.dead.Load() {
			r.die()
		}
		r.cancel() // later effects of it in this process do not count
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.client.Close(over)
		f.Pass(min(pauses(n), max(0, time.Until(end))))
	}
}

// backOff returns how long a container waits after its n-th death.
func backOff(n int) time.Duration { return min(10*time.Second<<min(n-1, 5), 5*time.Minute) }

// A new version crashes again and again: at start, when its probe kills it, or in its first run. If it
// crashes at start, the old one runs each tick. Otherwise the new one acts while it lives, and no tick
// is late for long.
// Mutants: a start is enough to take over; the old version waits for the dead one.
func TestFault79_AVersionThatCrashesAgainAndAgain(t *testing.T) {
	same := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	const over = 20 * time.Minute
	for name, c := range map[string]struct {
		lives, pauses func(int) time.Duration
		inRun         bool
		never         bool // it runs no tick
	}{
		"at start":         {same(2 * time.Second), backOff, false, true},
		"by its probe":     {same(90 * time.Second), same(time.Second), false, false},
		"in its first run": {same(30 * time.Minute), backOff, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				old := map[string]*replica{}
				for _, name := range []string{"old-1", "old-2"} {
					r := f.replica(name, singleton.Config{TTL: 10 * time.Second})
					r.add("draw", "* * * * *", nil, singleton.JobConfig{})
					r.run()
					old[name] = r
				}
				f.recorded("draw", 2)
				begin := time.Now()
				work := func(r *replica) func(context.Context, singleton.Run) error {
					return func(ctx context.Context, _ singleton.Run) error {
						if c.inRun {
							r.die()
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					}
				}
				f.crashes("* * * * *", work, over, c.lives, c.pauses)
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
					if entries[0].replica[:3] == "bad" {
						tried++
					}
				}
				runs := f.ended("draw")
				for at := begin.Truncate(time.Minute).Add(time.Minute); at.Before(begin.Add(over)); at = at.Add(time.Minute) {
					if r := runs[at.UnixMilli()]; r.Outcome != singleton.OutcomeSucceeded {
						t.Errorf("the tick of %v is recorded as %+v", at, r)
					}
				}
				if (tried == 0) != c.never {
					t.Errorf("the version that crashes was given %d ticks", tried)
				}
				f.proven("draw", every(t, time.Minute))
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

// own is a custom schedule of one version only.
type own struct{ every time.Duration }

func (s own) Next(t time.Time) time.Time { return t.Truncate(s.every).Add(s.every).UTC() }

// A schedule changes while a draw takes long, while replicas run, or after days without any. Each tick of
// the former schedule ran, or is in the time of the one entry for the change; each one of the new
// schedule runs from then on.
// Mutants: the former schedule continues; the change has no entry; the new one begins earlier.
func TestFault80_AScheduleChanges(t *testing.T) {
	noon, err := schedule.Parse("0 12 * * *", schedule.Config{TimeZone: time.FixedZone("CST", 8*3600)})
	testenv.Must(t, err)
	for name, c := range map[string]struct {
		former schedule.Schedule
		takes  time.Duration // a draw
		away   time.Duration // how long no replica is alive; 0: the old one continues
		dies   bool
	}{
		"side by side":               {former: every(t, 10*time.Second)},
		"while a tick is late":       {former: every(t, time.Second), takes: 6 * time.Second},
		"after days":                 {former: noon, away: 3*24*time.Hour + 30*time.Second},
		"after days, one died":       {former: noon, away: 3*24*time.Hour + 30*time.Second, dies: true},
		"a schedule of one's own":    {former: own{10 * time.Minute}, away: time.Hour},
		"one's own, while it is run": {former: own{10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				a := f.replica("old", singleton.Config{TTL: 10 * time.Second})
				testenv.Must(t, a.runner.Add("draw", c.former, a.noted(sleep(c.takes)), singleton.JobConfig{Revision: "1"}))
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
				if n := f.accounted(c.former, from, changed); n < 1 {
					t.Errorf("%d ticks of the former schedule were run", n)
				}
				if n := f.accounted(every(t, 20*time.Second), changed, time.Now().Add(-20*time.Second)); n < 3 {
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

// A printed is noon in UTC, with a String method that describes it.
type printed struct{ text *string }

func (printed) Next(t time.Time) time.Time {
	return t.Add(12 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour).UTC()
}

func (p printed) String() string { return fmt.Sprintf("%s at %p", *p.text, p.text) }

// Schedules of the application with one Revision are one definition, although their String methods return
// different texts: no noon is skipped when a new version prints another one.
// Mutant: what String returns is part of the definition.
func TestFault78_AScheduleOfOnesOwnIsItsRevision(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		add := func(name, text string) *replica {
			r := f.replica(name, singleton.Config{})
			if err := r.runner.Add("draw", printed{&text}, r.noted(nil), singleton.JobConfig{Revision: "1"}); err != nil {
				t.Fatal(err)
			}
			r.run()
			return r
		}
		old := []*replica{add("a", "noon"), add("b", "noon"), add("c", "noon")}
		f.recorded("draw", 1)
		for _, r := range old {
			r.stop()
		}
		f.Pass(24 * time.Hour)
		add("d", "each day at noon")
		f.Pass(time.Minute)
		runs := f.runs("draw")
		if len(runs) != 2 || runs[0].Outcome != singleton.OutcomeSucceeded || runs[1].Outcome != singleton.OutcomeSucceeded {
			t.Errorf("the history is %+v, want two successes", runs)
		}
		if n := f.log.Count("another definition"); n > 0 {
			t.Errorf("%d replicas report another definition", n)
		}
	})
}

// Two programs use one prefix and one job name. If any part of their definitions differs,
// both log and count that. If none does, they are replicas of one job: one of them runs each
// tick, which cannot be noticed. A Revision for each program distinguishes them.
// Mutants: only the one that claims nothing does; it is logged at each look.
func TestFault78_TwoProgramsWithOneJob(t *testing.T) {
	const every = "*/5 * * * *"
	for name, c := range map[string]struct {
		schedule string
		cfg      singleton.JobConfig
		differ   bool
	}{
		"another revision":         {every, singleton.JobConfig{Revision: "bank"}, true},
		"another length of record": {every, singleton.JobConfig{KeepRuns: 7}, false},
		"nothing":                  {every, singleton.JobConfig{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				regs := map[string]*prometheus.Registry{}
				add := func(name, schedule string, cfg singleton.JobConfig) {
					regs[name] = prometheus.NewRegistry()
					r := f.replica(name, singleton.Config{}, regs[name])
					r.add("draw", schedule, nil, cfg)
					r.run()
				}
				add("shop", every, singleton.JobConfig{})
				add("bank", c.schedule, c.cfg)
				expect := func(n int) {
					t.Helper()
					if said := f.log.Count("job has two definitions"); said != n*len(regs) {
						t.Errorf("it is logged %d times, want %d:\n%s", said, n*len(regs), &f.log)
					}
					for name, reg := range regs {
						if counted, _ := metric(t, reg, "noonlock_job_definition_conflicts_total", "name", "draw"); int(counted) != n {
							t.Errorf("%s counts %v conflicts, want %d", name, counted, n)
						}
					}
				}
				f.Pass(9 * time.Minute)
				expect(0)
				f.Pass(30 * time.Minute)
				if c.differ {
					expect(3)
					return
				}
				expect(0)
				for tick, runs := range f.ticks("draw") {
					if len(runs) != 1 {
						t.Errorf("tick %v ran %d times", tick, len(runs))
					}
				}
			})
		})
	}
}
