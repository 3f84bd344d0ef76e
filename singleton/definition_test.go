package singleton_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// A new version crashes again and again: at start, after a while, when its probe kills it,
// or in its first run. The old version continues: it runs each minute, except the few on
// which the new one is tried, and none is late for long.
// Mutants: a start is enough to take over; probations do not become longer; a replica that was
// just restarted counts for the dead one.
func TestFault79_AVersionThatCrashesAgainAndAgain(t *testing.T) {
	same := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for name, c := range map[string]struct {
		lives, pauses func(int) time.Duration
		inRun         bool
		over          time.Duration
		most          int // ticks that the new version gets
	}{
		"at start":              {same(2 * time.Second), backOff, false, 45 * time.Minute, 0},
		"after six seconds":     {same(6 * time.Second), same(time.Second), false, 20 * time.Minute, 1},
		"by its probe, at once": {same(90 * time.Second), same(time.Second), false, 45 * time.Minute, 5},
		"in its first run":      {same(30 * time.Minute), backOff, true, 45 * time.Minute, 5},
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
				f.crashes("* * * * *", work, c.over, c.lives, c.pauses)
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
				for at := begin.Truncate(time.Minute).Add(time.Minute); at.Before(begin.Add(c.over)); at = at.Add(time.Minute) {
					if r := runs[at.UnixMilli()]; r.Outcome != singleton.OutcomeSucceeded {
						t.Errorf("the tick of %v is recorded as %+v", at, r)
					}
				}
				if tried > c.most {
					t.Errorf("the version that crashes was given %d ticks", tried)
				}
				t.Logf("the version that crashes was given %d ticks", tried)
				f.proven("draw", every(t, time.Minute))
				f.alone("draw")
			})
		})
	}
}

// accounted asserts that each tick of the schedule in (from, to] was either run or recorded
// with a reason.
func (f *fleet) accounted(schedule schedule.Schedule, from, to time.Time) (ran, skipped int) {
	f.Helper()
	runs := f.runs("draw")
	listed := map[time.Time]int{}
	for _, r := range runs {
		switch r.Count {
		case 0:
			listed[r.Tick]++
			ran++
		default:
			n := 0
			for at := r.Tick; !at.After(r.Last); at = schedule.Next(at) {
				listed[at]++
				n++
			}
			if r.Error == "rescheduled" && n != r.Count {
				f.Errorf("%+v has a wrong count: %d ticks", r, n)
			}
			skipped += r.Count
		}
	}
	for at := schedule.Next(from); !at.After(to); at = schedule.Next(at) {
		if listed[at] != 1 {
			f.Errorf("the tick of %v is listed %d times", at, listed[at])
		}
	}
	return ran, skipped
}

// A draw is delayed while another schedule is rolled out. Each tick that was due by the
// former schedule is recorded, however the schedule is written and whichever replicas were
// alive.
// Mutants: only one of them is recorded; those that became due since the last look are not.
func TestFault80_AScheduleChangesWhileATickIsLate(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a := f.replica("old", singleton.Config{TTL: 10 * time.Second})
		slow := false
		a.add("draw", "@every 1s", func(ctx context.Context, run singleton.Run) error {
			if slow {
				return sleep(6*time.Second)(ctx, run)
			}
			return nil
		}, singleton.JobConfig{})
		a.run()
		f.recorded("draw", 3)
		from := f.runs("draw")[0].Tick.Add(-time.Millisecond)
		slow = true
		f.scheduled("new", "@every 2s", singleton.JobConfig{})
		f.Until("the new one acts", func() bool { return f.log.Count("schedule changed; remaining") > 0 })
		changes, err := f.job("draw").Schedules(t.Context())
		if err != nil || len(changes) != 2 || changes[0].Text != "@every 1s" || changes[1].Text != "@every 2s" {
			t.Fatalf("the schedules are %+v, %v", changes, err)
		}
		f.Pass(20 * time.Second)
		if _, skipped := f.accounted(every(t, time.Second), from, changes[1].Since); skipped < 3 {
			t.Errorf("%d ticks are recorded as skipped: %+v", skipped, f.runs("draw"))
		}
		n := 0
		for at := changes[1].Schedule.Next(changes[1].Since); at.Before(time.Now().Add(-8 * time.Second)); at = changes[1].Schedule.Next(at) {
			n++
			if len(f.ticks("draw")[at.UnixMilli()]) != 1 {
				t.Errorf("the new schedule's tick of %v is not run", at)
			}
		}
		if n < 3 {
			t.Errorf("only %d ticks of the new schedule", n)
		}
		f.ranOnce("draw")
	})
}

// own is a custom schedule of one version only.
type own struct{ every time.Duration }

func (s own) Next(t time.Time) time.Time {
	return t.Truncate(s.every).Add(s.every).UTC().Add(0)
}

// No replica is alive for days, and then a version with another schedule starts. Each
// unrecorded tick of the former schedule is recorded and counted.
// Mutants: only the last stored tick is known; a zone is identified by its name.
func TestFault80_AScheduleChangesWithoutLiveReplicas(t *testing.T) {
	noon, err := schedule.Parse("0 12 * * *", schedule.Config{TimeZone: time.FixedZone("CST", 8*3600)})
	if err != nil {
		t.Fatal(err)
	}
	for _, dies := range []bool{false, true} {
		for _, former := range []schedule.Schedule{noon, own{10 * time.Minute}} {
			inBubble(t, func(t *testing.T, f *fleet) {
				a := f.replica("old", singleton.Config{})
				if err := a.runner.AddSchedule("draw", former, a.noted(nil), singleton.JobConfig{CatchUp: singleton.CatchUpAll}); err != nil {
					t.Fatal(err)
				}
				a.run()
				f.recorded("draw", 1)
				from := f.runs("draw")[0].Tick.Add(-time.Millisecond)
				if dies {
					a.die()
				}
				a.stop()
				f.Pass(3*24*time.Hour + 30*time.Second)
				reg := prometheus.NewRegistry()
				b := f.replica("new", singleton.Config{Registerer: reg})
				b.add("draw", "7,37 * * * *", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
				b.run()
				f.Until("the new one acts", func() bool { return f.log.Count("schedule changed; remaining") > 0 })
				f.Pass(time.Minute)
				_, skipped := f.accounted(former, from, time.Now().Add(-time.Minute-10*time.Second))
				if n, _ := metric(t, reg, "noonlock_job_skipped_ticks_total", "reason", "rescheduled"); int(n) != skipped || skipped < 3 {
					t.Errorf("%v ticks are counted, %d recorded", n, skipped)
				}
			})
		}
	}
}

// A printed is noon in UTC, with a String method that describes it.
type printed struct{ text *string }

func (printed) Next(t time.Time) time.Time {
	return t.Add(12 * time.Hour).Truncate(24 * time.Hour).Add(12 * time.Hour).UTC()
}

func (p printed) String() string { return fmt.Sprintf("%s at %p", *p.text, p.text) }

// Equal Schedules of the application are one definition, although their String methods return
// different texts: no noon is skipped when a new version prints another one.
// Mutant: what String returns is part of the definition.
func TestFault78_AScheduleIsWhatItDoes(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		add := func(name, text string) *replica {
			r := f.replica(name, singleton.Config{})
			if err := r.runner.AddSchedule("draw", printed{&text}, r.noted(nil), singleton.JobConfig{}); err != nil {
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

// The ledger is lost while its replicas are idle: each one logs and counts that once.
// Mutants: only the first one does; it is logged at each look.
func TestFault23_ClassD_ALostLedgerIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		regs := map[string]*prometheus.Registry{}
		for _, name := range []string{"a", "b", "c"} {
			regs[name] = prometheus.NewRegistry()
			r := f.replica(name, singleton.Config{Registerer: regs[name]})
			r.add("draw", "0 12 * * *", nil, singleton.JobConfig{})
			r.run()
		}
		f.Pass(time.Hour)
		if n := f.log.Count("ledger lost or set back"); n != 0 {
			t.Fatalf("%d replicas report a loss", n)
		}
		for loss := 1; loss <= 2; loss++ {
			f.Raw.FlushAll(t.Context())
			f.Pass(5 * time.Minute)
			if n := f.log.Count("ledger lost or set back"); n != 3*loss {
				t.Errorf("loss %d is reported %d times:\n%s", loss, n, &f.log)
			}
			for name, reg := range regs {
				if n, _ := metric(t, reg, "noonlock_job_ledger_losses_total", "name", "draw"); int(n) != loss {
					t.Errorf("%s counts %v losses", name, n)
				}
			}
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
					r := f.replica(name, singleton.Config{Registerer: regs[name]})
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
					expect(1)
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
