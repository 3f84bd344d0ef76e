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
// definition d1, which acts unless the row says otherwise.
// Mutants: each bound is a millisecond off; deaths do not count; deaths count for ever; a start is
// enough; the oldest definition acts.
func TestWhichDefinitionActs(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const old, ms = -time.Hour, time.Millisecond
		type life struct {
			def   string
			since time.Duration
		}
		const d1, d2 = "d1 acts, mine , dropped , others 1, wait %d, handover ", "d2 acts, mine 1, dropped , others %d, wait 0, handover "
		for _, row := range []struct {
			name  string
			acts  string
			lives []life
			died  map[string]string
			age   time.Duration
			want  string
		}{
			{"its probation is not over", "d1", []life{{"d1", old}}, nil, 5*time.Second - ms, fmt.Sprintf(d1, 1)},
			{"it is over", "d1", []life{{"d1", old}}, nil, 5 * time.Second, fmt.Sprintf(d2, 1)},
			{"one has died", "d1", []life{{"d1", old}}, map[string]string{"d2": "1 " + j.ms(-time.Minute)}, 20*time.Second - ms, fmt.Sprintf(d1, 1)},
			{"one has died, and it is over", "d1", []life{{"d1", old}}, map[string]string{"d2": "1 " + j.ms(-time.Minute)}, 20 * time.Second, fmt.Sprintf(d2, 1)},
			{"many have died", "d1", []life{{"d1", -2 * time.Hour}}, map[string]string{"d2": "9 " + j.ms(-time.Minute)}, time.Hour - ms, fmt.Sprintf(d1, 1)},
			{"many have died, and it is over", "d1", []life{{"d1", -2 * time.Hour}}, map[string]string{"d2": "9 " + j.ms(-time.Minute)}, time.Hour, fmt.Sprintf(d2, 1)},
			{"the last one died almost an hour ago", "d1", []life{{"d1", old}}, map[string]string{"d2": "1 " + j.ms(ms-time.Hour)}, 5 * time.Second, fmt.Sprintf(d1, 15000)},
			{"the last one died an hour ago", "d1", []life{{"d1", old}}, map[string]string{"d2": "1 " + j.ms(-time.Hour)}, 5 * time.Second, fmt.Sprintf(d2, 1)},
			{"others have died", "d1", []life{{"d1", old}}, map[string]string{"d1": "3 " + j.ms(-time.Minute)}, 5 * time.Second, fmt.Sprintf(d2, 1)},
			{"it is older", "d1", []life{{"d1", -time.Minute}}, nil, time.Minute + ms, fmt.Sprintf(d1, 0)},
			{"they are as old", "d1", []life{{"d1", -time.Minute}}, nil, time.Minute, fmt.Sprintf(d2, 1)},
			{"they are as old, and the name of the other one is greater", "d3", []life{{"d3", -time.Minute}}, nil, time.Minute, "d3 acts, mine , dropped , others 1, wait 0, handover "},
			{"it is younger than the oldest one", "d1", []life{{"d1", -time.Minute}, {"d1", -time.Second}}, nil, 59 * time.Second, fmt.Sprintf(d2, 2)},
			{"it is younger than the oldest one, and another one has passed", "d1", []life{{"d1", -10 * time.Second}, {"d1", -time.Minute}}, nil, 59 * time.Second, fmt.Sprintf(d2, 2)},
			{"its oldest replica is older", "d1", []life{{"d1", -time.Minute}, {"d2", old}}, nil, 30 * time.Second, "d1 acts, mine , dropped , others 2, wait 0, handover "},
			{"the other one is on probation", "d1", []life{{"d1", -time.Second}}, nil, 5 * time.Second, fmt.Sprintf(d2, 1)},
			{"both are", "d1", []life{{"d1", -4 * time.Second}}, nil, time.Second, fmt.Sprintf(d1, 4000)},
			{"both are, and the one that acts has no replica", "d0", []life{{"d1", -4 * time.Second}}, nil, time.Second, "d2 acts, mine 1, dropped , others 1, wait 0, handover "},
			{"both are, and the other one is younger", "d0", []life{{"d1", -time.Second}}, nil, 4 * time.Second, "d0 acts, mine , dropped , others 2, wait 1000, handover "},
			{"nothing acts", "", nil, nil, 0, fmt.Sprintf(d2, 0)},
			{"it acts", "d2", []life{{"d2", old}}, nil, 0, fmt.Sprintf(d2, 0)},
			{"it acts, and the others are on probation", "d2", []life{{"d1", -time.Second}}, nil, 0, fmt.Sprintf(d2, 1)},
			{"it acts, is on probation, and another one has passed", "d2", []life{{"d1", old}, {"d2", -10 * time.Second}}, nil, time.Second, "d2 acts, mine , dropped , others 1, wait 4000, handover "},
			{"it acts, is on probation, and one of two others has passed", "d2", []life{{"d1", old}, {"d3", -time.Second}, {"d2", -10 * time.Second}}, nil, time.Second, "d2 acts, mine , dropped , others 2, wait 4000, handover "},
			{"the same, in another order", "d2", []life{{"d3", -time.Second}, {"d1", old}, {"d2", -10 * time.Second}}, nil, time.Second, "d2 acts, mine , dropped , others 2, wait 4000, handover "},
			{"it acts, is on probation, and another one has just passed", "d2", []life{{"d1", -5 * time.Second}, {"d2", -4 * time.Second}}, nil, time.Second, "d2 acts, mine , dropped , others 1, wait 4000, handover "},
			{"it is on probation, and another of its replicas has passed", "d1", []life{{"d1", old}, {"d2", -10 * time.Second}}, nil, time.Second, "d1 acts, mine , dropped , others 2, wait 4000, handover "},
			{"it acts, and an older one has replicas", "d2", []life{{"d1", old}}, nil, 5 * time.Second, fmt.Sprintf(d2, 1)},
		} {
			fields := []any{"sched", "s", "died:spoilt", "?"}
			if row.acts != "" {
				fields = append(fields, "def", row.acts)
			}
			for def, text := range row.died {
				fields = append(fields, "died:"+def, text)
			}
			j.stands(fields...)
			for i, l := range row.lives {
				j.lives(fmt.Sprint("r", i), l.def, l.since)
			}
			j.wants(row.name, j.opens("b", "d2", row.age, "s"), row.want)
			for def, text := range row.died {
				if strings.HasSuffix(text, " "+j.ms(-time.Hour)) {
					text = ""
				}
				j.wants(row.name+": deaths of "+def, j.field("died:"+def), text)
			}
			j.wants(row.name+": a spoilt number of deaths", j.field("died:spoilt"), "")
			till := 90 * time.Second
			for _, l := range row.lives {
				if l.def != "d2" {
					till = 15 * time.Second
				}
			}
			j.wants(row.name+": its record", j.field("live:b"), j.ms(till)+" "+j.ms(-row.age)+" d2 b")
		}
	})
}

// A replica whose record has lapsed has died, unless the one that looks was away itself.
// Mutants: a replica that was away takes over at once; the dead are kept; the dead do not count.
func TestLapsedReplicasToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for _, row := range []struct {
			name   string
			there  bool          // the record of the one that looks
			age    time.Duration // of the one that looks
			lapsed time.Duration
			died   string
			want   string
			record string // of the other one
		}{
			{"it lives", true, time.Hour, -time.Millisecond, "", "d1 acts, mine , dropped , others 1, wait 0, handover ", j.ms(time.Millisecond) + " " + j.ms(-time.Minute) + " d1 a"},
			{"it has lapsed", true, time.Hour, 0, "1 " + j.ms(0), "d2 acts, mine 1, dropped , others 0, wait 0, handover ", ""},
			{"it has lapsed, and the one that looks starts", false, 15*time.Second - time.Millisecond, 0, "1 " + j.ms(0), "d2 acts, mine 1, dropped , others 0, wait 0, handover ", ""},
			{"it has lapsed, and the one that looks was away, or starts late", false, 15 * time.Second, 0, "", "d2 acts, mine 1, dropped , others 1, wait 0, handover ", j.ms(15*time.Second) + " " + j.ms(-time.Minute) + " d1 a"},
			{"it has lapsed, and the one that looks was away", false, time.Hour, 0, "", "d1 acts, mine , dropped , others 1, wait 0, handover ", j.ms(15*time.Second) + " " + j.ms(-time.Minute) + " d1 a"},
		} {
			j.stands("def", "d1", "sched", "s")
			testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "live:a", j.ms(-row.lapsed)+" "+j.ms(-time.Minute)+" d1 a", "live:spoilt", "?").Err())
			if row.there {
				j.lives("b", "d2", -row.age)
			}
			j.wants(row.name, j.opens("b", "d2", row.age, "s"), row.want)
			j.wants(row.name+": deaths", j.field("died:d1"), row.died)
			j.wants(row.name+": its record", j.field("live:a"), row.record)
			j.wants(row.name+": a spoilt one", j.field("live:spoilt"), "")
		}
		j.stands("def", "d1", "sched", "s", "died:d1", "2 "+j.ms(-time.Second))
		testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "live:a", j.ms(0)+" "+j.ms(-time.Minute)+" d1 a").Err())
		j.opens("b", "d2", time.Second, "s")
		j.wants("another death", j.field("died:d1"), "3 "+j.ms(0))
	})
}

// A definition first reports which ticks of another schedule were not recorded, up to an
// instant that has passed, unless the server has forgotten that it has taken over before.
func TestHandoversToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const asked, acts = "d1 acts, mine , dropped , others 1, wait 0, handover 1", "d2 acts, mine 1, dropped , others 0, wait 0, handover "
		seen := j.ms(-time.Second)
		for _, row := range []struct {
			name string
			says []any
			want string
			last string
		}{
			{"nothing", nil, asked, seen},
			{"up to now", []any{j.ms(0), seen}, acts, j.ms(0)},
			{"up to the next millisecond", []any{j.ms(time.Millisecond), seen}, asked, seen},
			{"up to what is accounted for", []any{seen, seen}, acts, seen},
			{"up to less than that", []any{j.ms(-2 * time.Second), seen}, acts, seen},
			{"by an older tick", []any{j.ms(0), j.ms(-2 * time.Second)}, asked, seen},
			{"two ticks", []any{j.ms(0), seen, j.ms(-2 * time.Millisecond), j.ms(-time.Millisecond), 2}, "d2 acts, mine 1, dropped 1, others 0, wait 0, handover ", j.ms(0)},
		} {
			j.stands("def", "d1", "gen", "1", "sched", "s1")
			j.wants(row.name, j.opens("b", "d2", time.Hour, append([]any{"s2"}, row.says...)...), row.want)
			j.wants(row.name+": accounted for", j.field("last"), row.last)
			if len(row.says) > 2 {
				j.wants(row.name+": the history", fmt.Sprint(jobFields(j.Raw.LIndex(j.Context(), j.key(jobName, "runs"), 0).Val())), fmt.Sprint(map[string]string{
					"tick": j.ms(-2 * time.Millisecond), "last": j.ms(-time.Millisecond), "count": "2", "outcome": "skipped", "error": "rescheduled",
				}))
			}
		}
		for _, row := range []struct {
			known     int
			want, gen string
		}{
			{1, asked, "1"},
			{2, acts, "3"},
		} {
			j.stands("def", "d1", "gen", "1", "sched", "s1")
			args := []any{"", "", "", 10, 3600000, "b", "d2", 3600000, "b", row.known, "", "s2", "spec", "", "", "", "", "", "", ""}
			j.run("job_open", j.keys("job", "open", "runs", "defs", "acts"), args...)
			j.wants(fmt.Sprintf("%d take-overs are known", row.known), j.opens("b", "d2", time.Hour, "s2"), row.want)
			j.wants("take-overs", j.field("gen"), row.gen)
		}

		// The newest accounted tick is ahead of the clock, which was set back.
		ahead := j.ms(time.Hour)
		j.stands("def", "d1", "sched", "s1", "last", ahead)
		j.wants("up to what is accounted for, which is ahead", j.opens("b", "d2", time.Hour, "s2", ahead, ahead), acts)
		j.wants("accounted for", j.field("last"), ahead)
	})
}

// A new definition acts after its probation, and restarts of the old one change nothing. When the
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

// All replicas were away, as with the server. The first one that is back gives those of the definition
// that acts the time to come back, too. One that has looked all the time takes them for dead.
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
		e.Pass(2 * time.Minute)
		one.looks(false)
		e.Pass(14 * time.Second)
		one.looks(false)
		two.looks(true)
		one.looks(false)
		for range 2 {
			e.Pass(5 * time.Second)
			one.looks(false)
		}
		e.Pass(5*time.Second - time.Millisecond)
		one.looks(false)
		e.Pass(time.Millisecond)
		one.looks(true)
		if died := e.Raw.HGet(e.Context(), e.key("job/draw", "job"), "died:2").Val(); died[:2] != "1 " {
			e.Errorf("deaths of the second definition: %q", died)
		}
	})
}

// The server's clock is set back by an hour (class D). Probations and lapses are as long as otherwise.
func TestFault36_ClassD_DefinitionsAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1"), e.definer("2")
		one.looks(true)
		e.Pass(time.Minute)
		two.looks(false)
		e.Bubble.StepClock(-time.Hour)
		two.looks(false)
		one.looks(true) // until then, its record says that it starts in an hour
		e.Pass(5*time.Second - time.Millisecond)
		two.looks(false)
		e.Pass(time.Millisecond)
		two.looks(true)
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
		e.Cleanup(one.ledger.Watch(func() { told.Add(1) }))
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
		st, err := e.job().Status(e.Context())
		testenv.Must(e, err)
		d := st.Definitions
		if len(d) != 2 || !d[0].Acts || d[0].ID != "2" || len(d[0].Replicas) != 1 || d[0].Replicas[0].Identity != "2" || !strings.HasPrefix(d[0].Why, "it is the newest one") ||
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
// comes back first. If none of its replicas comes back, another one acts after 15 s.
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
			for range 2 {
				e.Pass(5 * time.Second)
				all[0].looks(false)
				all[1].looks(false)
			}
			e.Pass(5*time.Second - time.Millisecond)
			all[1].looks(false)
			e.Pass(time.Millisecond)
			all[0].looks(false)
			all[1].looks(true)
		})
	}
}
