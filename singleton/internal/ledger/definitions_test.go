package ledger_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A definer is a replica with its own definition of the job.
type definer struct {
	*env
	ledger *ledger.Ledger
	state  ledger.State
}

func (e *env) definer(def string) *definer {
	e.Helper()
	return &definer{env: e, ledger: e.jobLedger(e.Client(def), ledger.Config{Definition: def, Schedule: "s"})}
}

// looks lets the replica look, and asserts whether its definition acts.
func (d *definer) looks(acts bool) {
	d.Helper()
	var err error
	d.state, err = d.ledger.Open(d.Context(), d.state)
	testenv.Must(d.env, err)
	if d.state.Superseded == acts {
		d.Fatalf("want that it acts: %v, got %+v", acts, d.state)
	}
}

// The rule of part_definitions.lua, row by row. Replica b of definition d2 looks beside replicas of
// other definitions.
// Mutants: each bound is a millisecond off; a start is enough; the oldest definition acts; a definition
// that was away takes over at once.
func TestWhichDefinitionActs(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const old, ms = -time.Hour, time.Millisecond
		type life struct {
			def         string
			since, from time.Duration
		}
		const d1, d2 = "d1 acts, mine , changed , others 1, wait %d", "d2 acts, mine 1, changed , others %d, wait 0"
		for _, row := range []struct {
			name   string
			acts   string
			lives  []life
			from   time.Duration // since when b is known; 0: it is not
			age    time.Duration
			waited string
			want   string
		}{
			{"it is new", "d1", []life{{"d1", old, old}}, 0, 0, "", fmt.Sprintf(d1, 5000)},
			{"it is new here, and had started before", "d1", []life{{"d1", old, old}}, 0, 10 * time.Second, "", fmt.Sprintf(d1, 5000)},
			{"it waits", "d1", []life{{"d1", old, old}}, ms - 5*time.Second, 5 * time.Second, "waits", fmt.Sprintf(d1, 1)},
			{"it has waited", "d1", []life{{"d1", old, old}}, -5 * time.Second, 5 * time.Second, "waits", fmt.Sprintf(d2, 1)},
			{"it has waited, and is older", "d1", []life{{"d1", -time.Minute, -time.Minute}}, old, time.Minute + ms, "waits", fmt.Sprintf(d1, 0)},
			{"they are as old", "d1", []life{{"d1", -time.Minute, -time.Minute}}, -time.Minute, time.Minute, "waits", fmt.Sprintf(d2, 1)},
			{"they are as old, and the name of the other one is greater", "d3", []life{{"d3", -time.Minute, -time.Minute}}, -time.Minute, time.Minute, "waits", "d3 acts, mine , changed , others 1, wait 0"},
			{"the other one has restarted", "d1", []life{{"d1", old, old}, {"d1", -time.Second, -time.Second}}, -10 * time.Second, 10 * time.Second, "waits", fmt.Sprintf(d2, 2)},
			{"it has restarted", "d1", []life{{"d1", -time.Minute, -time.Minute}, {"d2", old, old}}, -30 * time.Second, 30 * time.Second, "waits", "d1 acts, mine , changed , others 2, wait 0"},
			{"it is new, and another of its replicas has waited, which may be dead", "d1", []life{{"d1", old, old}, {"d2", -time.Minute, -time.Minute}}, 0, 0, "", "d1 acts, mine , changed , others 2, wait 5000"},
			{"the other one waits", "d1", []life{{"d1", -time.Second, -time.Second}}, -5 * time.Second, 5 * time.Second, "waits", fmt.Sprintf(d2, 1)},
			{"both wait", "d1", []life{{"d1", -4 * time.Second, -4 * time.Second}}, -time.Second, time.Second, "waits", fmt.Sprintf(d1, 4000)},
			{"the one that acts has no replica", "d0", nil, 0, 0, "", fmt.Sprintf(d2, 0)},
			{"the one that acts has no replica, and this one was away itself", "d0", nil, 0, time.Minute, "waits", "d0 acts, mine , changed , others 1, wait 5000"},
			{"the one that acts has no replica, and a younger one waits", "d0", []life{{"d1", -time.Second, -time.Second}}, -4 * time.Second, 4 * time.Second, "", "d0 acts, mine , changed , others 2, wait 1000"},
			{"nothing acts", "", nil, 0, 0, "", fmt.Sprintf(d2, 0)},
			{"nothing acts, as the ledger was lost, and this one did not act", "", nil, 0, time.Minute, "waits", " acts, mine , changed , others 1, wait 5000"},
			{"it acted before all were away", "d1", []life{{"d1", old, -time.Minute}}, 0, 30 * time.Minute, "acts", fmt.Sprintf(d2, 1)},
			{"it acted, and was away while a newer one came", "d1", []life{{"d1", -time.Minute, -time.Minute}}, 0, time.Hour, "acts", fmt.Sprintf(d1, 0)},
			{"it has waited, and another of its replicas is new", "d1", []life{{"d1", old, old}, {"d2", -time.Second, -time.Second}}, -10 * time.Second, 10 * time.Second, "waits", fmt.Sprintf(d2, 1)},
			{"it is new, and so is another of its replicas, as the rest", "d1", []life{{"d1", -4 * time.Second, -4 * time.Second}, {"d2", -time.Second, -time.Second}, {"d2", -2 * time.Second, -2 * time.Second}}, 0, 0, "", "d1 acts, mine , changed , others 3, wait 5000"},
			{"it acts", "d2", []life{{"d2", old, old}}, 0, 0, "", fmt.Sprintf(d2, 0)},
			{"it acts, is new here, and an older one has waited", "d2", []life{{"d1", old, old}}, 0, 0, "", fmt.Sprintf(d2, 1)},
			{"it acts, and a newer one waits", "d2", []life{{"d1", -time.Second, -time.Second}}, old, time.Hour, "", fmt.Sprintf(d2, 1)},
			{"the clock was set back since it asked first", "d1", []life{{"d1", old, old}}, ms, 0, "waits", fmt.Sprintf(d2, 1)},
		} {
			fields := []any{"spec", "s"}
			if row.acts != "" {
				fields = append(fields, "def", row.acts)
			}
			j.stands(fields...)
			for i, l := range row.lives {
				j.lives(fmt.Sprint("r", i), l.def, l.since, l.from)
			}
			if row.from != 0 {
				j.lives("b", "d2", -row.age, row.from)
			}
			j.wants(row.name, j.opens("b", "d2", row.age, "s", row.waited), row.want)
			till := 90 * time.Second
			if strings.Contains(row.want, "others 1") || strings.Contains(row.want, "others 2") {
				till = 15 * time.Second
			}
			for _, l := range row.lives {
				if l.def != "d2" {
					till = 15 * time.Second
				}
			}
			if len(row.lives) == 0 {
				till = 90 * time.Second
			}
			from := row.from
			if row.waited == "acts" {
				from = -row.age
			}
			j.wants(row.name+": its record", j.field("live:b"), j.ms(till)+" "+j.ms(from)+" "+j.ms(-row.age)+" d2 b")
		}
	})
}

// A replica whose record has lapsed is forgotten.
// Mutants: the bound is a millisecond off; the dead are kept.
func TestLapsedReplicasToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for till, want := range map[time.Duration]string{
			time.Millisecond: "d1 acts, mine , changed , others 1, wait 5000",
			0:                "d2 acts, mine 1, changed , others 0, wait 0",
		} {
			j.stands("def", "d1", "spec", "s")
			record := j.ms(till) + " " + j.ms(-time.Minute) + " " + j.ms(-time.Minute) + " d1 a"
			testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "live:a", record, "live:spoilt", "?").Err())
			j.wants(till.String(), j.opens("b", "d2", 0, "s", ""), want)
			if till == 0 {
				record = ""
			}
			j.wants(till.String()+": its record", j.field("live:a"), record)
			j.wants(till.String()+": a spoilt one", j.field("live:spoilt"), "")
		}
	})
}

// A definition with another schedule accounts for the time from the newest accounted tick until now in
// one entry, also if that tick is ahead of a clock that was set back.
// No tick of that time runs again.
// Mutants: a definition with the same schedule does; the ticks of the new one begin earlier.
func TestAnotherScheduleToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		reruns := func(tick string) string {
			return j.run("job_rerun", j.keys("job", "open", "runs", "tomb:1", "acts"), tick, "1", 5, 60000, "ann", "why")
		}
		for _, row := range []struct {
			name, spec string
			last, upto time.Duration // upto 0: there is no entry
		}{
			{"the same", "s1", -time.Second, 0},
			{"another", "s2", -time.Second, 0},
			{"another, with a tick now", "s2", 0, time.Millisecond},
			{"another, after the clock was set back", "s2", time.Hour, time.Hour + time.Millisecond},
		} {
			j.stands("def", "d1", "spec", "s1", "last", j.ms(row.last))
			changed, last, entry := j.ms(row.last+time.Millisecond), j.ms(row.upto), fmt.Sprint(map[string]string{
				"tick": j.ms(row.last + time.Millisecond), "last": j.ms(row.upto), "outcome": "skipped", "error": "rescheduled",
			})
			if row.spec == "s1" {
				changed, last, entry = "", j.ms(row.last), "map[]"
			}
			j.wants(row.name, j.opens("b", "d2", time.Hour, row.spec, ""), "d2 acts, mine 1, changed "+changed+", others 0, wait 0")
			j.wants(row.name+": accounted for, and the schedule", j.field("last")+" "+j.field("spec"), last+" "+row.spec)
			j.wants(row.name+": the history", fmt.Sprint(jobFields(j.Raw.LIndex(j.Context(), j.key(jobName, "runs"), 0).Val())), entry)
			j.wants(row.name+": again", j.opens("b", "d2", time.Hour, row.spec, ""), "d2 acts, mine 1, changed "+changed+", others 0, wait 0")
			for _, tick := range []string{j.ms(row.last + time.Millisecond), last} {
				j.wants(row.name+": a rerun", reruns(tick), "[16]")
			}
			// Skipped ticks between two others may not be ticks of the new schedule.
			before := fmt.Sprintf(`{"tick":"%s","last":"%s","count":"3","outcome":"skipped","error":"missed"}`, j.ms(-5*time.Second), j.ms(-3*time.Second))
			testenv.Must(j, j.Raw.RPush(j.Context(), j.key(jobName, "runs"), before).Err())
			want := "[16]"
			if row.spec == "s1" {
				want = "[1]"
			}
			j.wants(row.name+": a rerun of a tick before", reruns(j.ms(-4*time.Second)), want)
			testenv.Must(j, j.Raw.HIncrBy(j.Context(), j.key(jobName, "job"), "last", 1).Err())
			j.wants(row.name+": a tick later", j.opens("b", "d2", time.Hour, row.spec, ""), "d2 acts, mine 1, changed , others 0, wait 0")
		}
	})
}

// A new definition acts when it has waited, and restarts of the old one change nothing. When the
// last replica of the new one has left, the old one acts at once. Claims and skips of a definition
// that does not act are refused.
// Mutants: a restart is a new definition; a claim of another definition is granted.
func TestTheNewestDefinitionActs(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1"), e.definer("2")
		one.looks(true)
		e.Pass(time.Minute)
		one.looks(true)
		two.looks(false)
		e.Pass(5*time.Second - time.Millisecond)
		two.looks(false)
		e.Pass(time.Millisecond)
		before := one.state
		two.looks(true)
		next := ledger.RunID{Tick: one.state.Last.Add(time.Second)}
		_, err := one.ledger.Claim(e.Context(), next, before, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimSuperseded)
		err = one.ledger.Skip(e.Context(), before, ledger.Skip{First: next.Tick, Last: next.Tick, Count: 1, Reason: "missed"})
		e.notClaimed(err, ledger.ClaimSuperseded)
		one.looks(false)
		restarted := e.definer("1")
		for range 3 {
			restarted.looks(false)
			one.looks(false)
			two.looks(true)
			e.Pass(5 * time.Second)
		}
		run, err := two.ledger.Claim(e.Context(), next, two.state, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		testenv.Must(e, two.ledger.Leave(e.Context(), two.state))
		one.looks(true)
		restarted.looks(true)
		if one.state.Replicas != 2 || one.state.Others != 0 {
			e.Errorf("at last there is %+v", one.state)
		}
	})
}

// All replicas were away, as with the server. The first one that is back, of a definition that did not act,
// gives those of the one that acts the time to come back. One that has looked all the time takes them
// for dead.
// Mutants: it takes over at its first look; it never does.
func TestAReplicaThatWasAway(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1"), e.definer("2")
		one.looks(true)
		e.Pass(time.Minute)
		two.looks(false)
		e.Pass(5 * time.Second)
		two.looks(true)
		one.looks(false)
		for range 2 {
			e.Pass(2 * time.Minute)
			one.looks(false)
			e.Pass(time.Second)
			two.looks(true)
			e.Pass(4 * time.Second)
			one.looks(false) // it has waited, and the other one has always acted
			two.looks(true)
		}
		for range 2 {
			e.Pass(5 * time.Second)
			one.looks(false)
		}
		e.Pass(5*time.Second - time.Millisecond)
		one.looks(false)
		e.Pass(time.Millisecond)
		one.looks(true)
	})
}

// The server's clock is set back by an hour (class D). Lapses are as long as otherwise, and nobody waits for longer.
func TestFault36_ClassD_DefinitionsAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1"), e.definer("2")
		one.looks(true)
		e.Pass(time.Minute)
		two.looks(false)
		e.Bubble.StepClock(-time.Hour)
		two.looks(false)
		one.looks(true) // until then, its record says that it starts in an hour
		two.looks(true) // how long it has waited is not known
		one.looks(false)
		e.Bubble.StepClock(-time.Hour) // and now the newest one dies
		one.looks(false)
		for range 17 { // its record, of 15 s, is now one of 90 s
			e.Pass(5 * time.Second)
			one.looks(false)
		}
		e.Pass(5 * time.Second)
		one.looks(true)
	})
}

// A start whose answers are lost is the same start when the replica repeats it.
// Mutant: the replica has another number after an error.
func TestAStartThatFailsCountsOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		c, net := e.Linked("old")
		old := &definer{env: e, ledger: e.jobLedger(c, ledger.Config{Definition: "1", Schedule: "s"})}
		e.opened(e.jobLedger(c, ledger.Config{})) // the script is known
		lost := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("job_open")})
		for range 3 {
			state, err := old.ledger.Open(e.Context(), old.state)
			testenv.MustIs(e, err, lockcore.ErrUnknown)
			old.state = state
		}
		lost.Lift()
		e.definer("2").looks(false)
		old.looks(true)
		if n := len(e.replicas()); n != 2 || lost.Fired() < 3 {
			e.Errorf("%d replicas are registered, and %d answers were lost", n, lost.Fired())
		}
	})
}

// The others are notified when a replica of another definition starts, when a definition takes over,
// and when a replica leaves, so they need not wait for a look. Status names the replicas.
// Mutants: none is notified; each look is announced.
func TestDefinitionsAreAnnounced(t *testing.T) {
	inBubble(t, func(e *env) {
		one := e.definer("1")
		one.looks(true)
		var told atomic.Int64
		e.Cleanup(one.ledger.Watch(func(*ledger.RunID, bool) { told.Add(1) }))
		e.Until("it is subscribed", func() bool { return told.Load() > 0 })
		told.Store(0)
		heard := func(what string, want int64) {
			e.Helper()
			e.Until(what, func() bool { return told.Load() >= want })
			e.Pass(20 * time.Millisecond)
			if n := told.Swap(0); n != want {
				e.Errorf("%s: notified %d times, want %d", what, n, want)
			}
		}
		e.Pass(time.Second)
		alike := e.definer("1")
		alike.looks(true)
		heard("another one of the definition starts", 0)
		e.Pass(time.Minute)
		two := e.definer("2")
		two.looks(false)
		heard("a new definition starts", 1)
		two.looks(false)
		heard("it looks", 0)
		e.Pass(5 * time.Second)
		two.looks(true)
		heard("it takes over", 1)
		two.looks(true)
		heard("it looks again", 0)
		st, err := e.job().Status(e.Context())
		testenv.Must(e, err)
		d := st.Definitions
		if len(d) != 2 || !d[0].Acts || d[0].ID != "2" || len(d[0].Replicas) != 1 || d[0].Replicas[0].Identity != "2" ||
			d[1].Acts || d[1].ID != "1" || len(d[1].Replicas) != 2 || d[1].Replicas[1].Since.Sub(d[1].Replicas[0].Since) < time.Second || st.Replicas != 1 {
			e.Errorf("the status is %+v", st)
		}
		testenv.Must(e, two.ledger.Leave(e.Context(), two.state))
		heard("it leaves", 1)
		testenv.Must(e, two.ledger.Leave(e.Context(), two.state))
		heard("it leaves again", 0)
	})
}

// After the server has lost its data (class D), the definition that acted acts again, whichever replica
// comes back first. If none of its replicas comes back, another one acts after 5 s.
// Mutants: the age of a replica counts from its return; the first one that comes back acts.
func TestDefinitionsSurviveALoss(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 0}} {
		inBubble(t, func(e *env) {
			var all []*definer
			for i, def := range []string{"3", "1", "2"} {
				d := e.definer(def)
				d.looks(i == 0)
				e.Pass(10 * time.Second)
				d.looks(true)
				all = append(all, d)
			}
			for _, d := range all[:2] {
				d.looks(false)
			}
			testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
			for _, i := range order {
				all[i].looks(i == 2)
			}
			if len(order) == 3 {
				return
			}
			e.Pass(5*time.Second - time.Millisecond)
			all[1].looks(false)
			e.Pass(time.Millisecond)
			all[0].looks(false)
			all[1].looks(true)
		})
	}
}
