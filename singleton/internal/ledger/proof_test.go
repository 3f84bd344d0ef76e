package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// A replica of a newer definition acts when it has lived for long enough. The required time
// grows each time that its definition has lost the job.
func TestProofsToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for _, row := range []struct {
			name   string
			struck string
			time   time.Duration
		}{
			{"the first time", ``, 5 * time.Second},
			{"another has lost the job", `{"d3":3}`, 5 * time.Second},
			{"it has lost the job", `{"d2":1}`, 20 * time.Second},
			{"it has lost the job twice", `{"d2":2}`, 80 * time.Second},
			{"it has lost the job often", `{"d2":5}`, time.Hour},
		} {
			fields := []any{"def", "d1", "base", "d1", "gen", "1", "top", "2"}
			if row.struck != "" {
				fields = append(fields, "struck", row.struck)
			}
			for _, left := range []time.Duration{2 * time.Millisecond, 0} {
				j.stands(fields...)
				j.lives("a", 1, -time.Hour, 1)
				j.lives("b", 2, left-row.time, 0)
				want := "gen 1 mine  own 2 dropped  others 1 watch  proof 2 handover "
				kept := "0"
				if left == 0 {
					want, kept = "gen 2 mine 1 own 2 dropped  others 1 watch 1 proof 0 handover ", "1"
				}
				name := fmt.Sprintf("%s, %v before", row.name, left)
				j.wants(name, j.opens("b", "d2", 2, "", 0), want)
				lapse := 90 * time.Second
				if left == 0 {
					lapse = 15 * time.Second // it is on trial
				}
				j.wants(name+", written down", j.field("live:b"), "2 "+j.ms(lapse)+" "+j.ms(left-row.time)+" "+kept)
			}
		}

		// With other replicas of a definition on trial.
		for _, left := range []time.Duration{time.Millisecond, 0} {
			j.stands("def", "d2", "base", "d1", "gen", "2", "top", "2")
			j.lives("a", 2, -time.Hour, 1)
			j.lives("b", 2, left-30*time.Second, 0)
			want := "gen 2 mine  own 2 dropped  others 0 watch  proof 1 handover "
			if left == 0 {
				want = "gen 2 mine 1 own 2 dropped  others 0 watch  proof 0 handover "
			}
			j.wants(fmt.Sprintf("on trial, %v before", left), j.opens("b", "d2", 2, "", 0), want)
		}
		j.stands("def", "d2", "base", "d1", "gen", "2", "top", "2", "struck", `{"d2":2}`)
		j.lives("a", 2, -time.Hour, 1)
		j.wants("on trial, and struck twice", j.opens("b", "d2", 2, "", 0), "gen 2 mine  own 2 dropped  others 0 watch  proof 80000 handover ")
	})
}

// A definition is proven when it has ended a run and acted for long enough.
func TestTrialsToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const trial = 5 * time.Minute
		for _, row := range []struct {
			ran    string
			took   time.Duration
			proven bool
		}{
			{"2", -trial, true},
			{"2", -trial + time.Millisecond, false},
			{"1", -trial, false},
			{"", -trial, false},
		} {
			j.stands("def", "d2", "base", "d1", "gen", "2", "top", "2", "took", j.ms(row.took), "struck", `{"d2":1}`)
			if row.ran != "" {
				testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "ran", row.ran).Err())
			}
			j.lives("a", 1, -time.Hour, 1)
			j.lives("b", 2, -time.Hour, 1)
			base, struck, watch := "d1", `{"d2":1}`, "1"
			if row.proven {
				base, struck, watch = "d2", "", ""
			}
			name := fmt.Sprintf("%+v", row)
			j.wants(name, j.opens("b", "d2", 2, "", 0), "gen 2 mine 1 own 2 dropped  others 1 watch "+watch+" proof 0 handover ")
			j.wants(name+": base and strikes", j.field("base")+" "+j.field("struck"), base+" "+struck)
			j.wants(name+": since when it acts", j.field("took"), j.ms(row.took))
		}
		j.stands("def", "d2", "base", "d1", "gen", "2", "top", "2", "took", j.ms(time.Hour), "ran", "2")
		j.lives("b", 2, -time.Hour, 1)
		j.opens("b", "d2", 2, "", 0)
		j.wants("the clock was set back since: base, and since when it acts", j.field("base")+" "+j.field("took"), "d1 "+j.ms(0))
		j.stands("def", "d2", "base", "d2", "gen", "2", "top", "2", "took", j.ms(-trial), "ran", "2", "struck", `{"d3":1}`)
		j.wants("it was proven before", j.opens("b", "d2", 2, "", 0), "gen 2 mine 1 own 2 dropped  others 0 watch  proof 0 handover ")
		j.wants("strikes of another", j.field("struck"), `{"d3":1}`)
	})
}

// The definition that loses the job on trial gets a strike, and more if it died during a
// run.
func TestStrikes(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		run := func(gen, id string) string { return fmt.Sprintf(`{"run":%q,"gen":%q,"til":"0"}`, id, gen) }
		for _, row := range []struct {
			name, base, before string
			open               string
			want               string
		}{
			{"no run is open", "d1", "", "", `{"d2":1}`},
			{"it died in a run", "d1", "", run("2", "x"), `{"d2":3}`},
			{"it gave the run up", "d1", "", run("2", ""), `{"d2":1}`},
			{"it is another's run", "d1", "", run("1", "x"), `{"d2":1}`},
			{"it was struck before", "d1", `{"d2":2}`, "", `{"d2":3}`},
			{"it was proven", "d2", "", "", ""},
		} {
			fields := []any{"def", "d2", "base", row.base, "gen", "2", "top", "2", "ran", "2", "took", j.ms(-time.Hour)}
			if row.before != "" {
				fields = append(fields, "struck", row.before)
			}
			j.stands(fields...)
			if row.open != "" {
				testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "open"), j.ms(-time.Second), row.open).Err())
			}
			j.lives("a", 1, -time.Hour, 1)
			j.wants(row.name, j.opens("a", "d1", 1, "", 0), "gen 1 mine 1 own 1 dropped  others 0 watch  proof 0 handover ")
			j.wants(row.name+": strikes", j.field("struck"), row.want)
			j.wants(row.name+": ran, took, top", j.field("ran")+" "+j.field("took")+" "+j.field("top"), " "+j.ms(0)+" 2")
		}
		for _, row := range []struct {
			name  string
			order int
			want  string
		}{
			{"a newer one takes over", 3, ""},
			{"one of the same order does, as after a loss", 2, `{"d2":1}`},
		} {
			j.stands("def", "d2", "base", "d1", "gen", "2", "top", "3")
			j.lives("c", row.order, -time.Hour, 1)
			j.wants(row.name, j.opens("c", "d3", row.order, "", 0), fmt.Sprintf("gen %d mine 1 own %[1]d dropped  others 0 watch  proof 0 handover ", row.order))
			j.wants(row.name+": strikes", j.field("struck"), row.want)
		}
	})
}

// A replica that may consider others dead may do so up to that millisecond.
func TestTrustToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for _, row := range []struct {
			trust time.Duration
			start string
			acts  bool
		}{
			{0, "", true},
			{-time.Millisecond, "", false},
			{-time.Millisecond, "1", true},
		} {
			j.stands("def", "d2", "base", "d2", "gen", "2", "top", "2")
			j.lives("a", 1, -time.Hour, 1)
			testenv.Must(j.env, j.Raw.Set(j.Context(), j.key(jobName, "tomb:1"), "1", minute).Err())
			want := "gen 2 mine  own 1 dropped  others 1 watch  proof 0 handover "
			if row.acts {
				want = "gen 1 mine 1 own 1 dropped  others 0 watch  proof 0 handover "
			}
			j.wants(fmt.Sprintf("%+v", row), j.opens("a", "d1", 1, row.start, row.trust), want)
			left := "1m0s"
			if row.start != "" {
				left = "5m0s"
			}
			j.wants("the tombstone's TTL", j.left(j.key(jobName, "tomb:1")), left)
		}
	})
}

// A start of another definition gets the highest order, and the same one when it is
// repeated. If no definition acts, it acts at once.
func TestOrdersOfStarts(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for _, row := range []struct {
			name, tomb string
			order      int
			top        string
		}{
			{"the first time", "", 5, "5"},
			{"repeated", "3", 3, "4"},
			{"repeated, after a loss", "9", 9, "9"},
		} {
			j.stands("def", "d1", "base", "d1", "gen", "1", "top", "4")
			j.lives("a", 1, -time.Hour, 1)
			if row.tomb != "" {
				testenv.Must(j.env, j.Raw.Set(j.Context(), j.key(jobName, "tomb:1"), row.tomb, minute).Err())
			}
			j.wants(row.name, j.opens("b", "d2", 0, "1", 0), fmt.Sprintf("gen 1 mine  own %d dropped  others 1 watch  proof 5000 handover ", row.order))
			j.wants(row.name+": top and tombstone", j.field("top")+" "+j.Raw.Get(j.Context(), j.key(jobName, "tomb:1")).Val(), fmt.Sprint(row.top, " ", row.order))
		}
		j.stands("def", "d3", "base", "d1", "gen", "3", "top", "4")
		j.lives("a", 1, -time.Hour, 1)
		j.wants("with another one that is fit", j.opens("b", "d2", 0, "1", 0), "gen 3 mine  own 5 dropped  others 2 watch 1 proof 5000 handover ")

		j.stands()
		j.wants("nothing acts", j.opens("b", "d2", 0, "1", 0, "s2"), "gen 1 mine 1 own 1 dropped  others 0 watch  proof 0 handover ")
		j.stands()
		j.lives("a", 1, -time.Hour, 1)
		j.wants("nothing acts any more", j.opens("b", "d2", 2, "", -time.Millisecond), "gen 2 mine 1 own 2 dropped  others 1 watch  proof 0 handover ")
		j.wants("top", j.field("top"), "2")
	})
}

// A replica first reports which ticks of another schedule were not recorded, up to an
// instant that has passed, unless the server has forgotten its order.
func TestHandoversToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const asked, acts = "gen 1 mine  own 2 dropped  others 1 watch  proof 0 handover 1", "gen 2 mine 1 own 2 dropped  others 0 watch  proof 0 handover "
		seen := j.ms(-time.Second)
		for _, row := range []struct {
			name, top string
			says      []any
			want      string
			last      string
		}{
			{"nothing", "2", nil, asked, seen},
			{"up to now", "2", []any{j.ms(0), seen}, acts, j.ms(0)},
			{"up to the next millisecond", "2", []any{j.ms(time.Millisecond), seen}, asked, seen},
			{"up to what is accounted for", "2", []any{seen, seen}, acts, seen},
			{"by an older tick", "2", []any{j.ms(0), j.ms(-2 * time.Second)}, asked, seen},
			{"two ticks", "2", []any{j.ms(0), seen, j.ms(-2 * time.Millisecond), j.ms(-time.Millisecond), 2}, "gen 2 mine 1 own 2 dropped 1 others 0 watch  proof 0 handover ", j.ms(0)},
			{"nothing, after a loss", "1", nil, acts, seen},
		} {
			j.stands("def", "d1", "base", "d1", "gen", "1", "top", row.top, "sched", "s1", "schedof", "d1")
			j.lives("b", 2, -time.Hour, 1)
			j.wants(row.name, j.opens("b", "d2", 2, "", 0, append([]any{"s2"}, row.says...)...), row.want)
			j.wants(row.name+": accounted for", j.field("last"), row.last)
			if len(row.says) > 2 {
				j.wants(row.name+": the history", fmt.Sprint(jobFields(j.Raw.LIndex(j.Context(), j.key(jobName, "runs"), 0).Val())), fmt.Sprint(map[string]string{
					"tick": j.ms(-2 * time.Millisecond), "last": j.ms(-time.Millisecond), "count": "2", "outcome": "skipped", "error": "rescheduled",
				}))
			}
		}

		// The newest accounted tick is ahead of the clock, which was set back.
		ahead := j.ms(time.Hour)
		j.stands("def", "d1", "base", "d1", "gen", "1", "top", "2", "sched", "s1", "schedof", "d1", "last", ahead)
		j.lives("b", 2, -time.Hour, 1)
		j.wants("up to what is accounted for, which is ahead", j.opens("b", "d2", 2, "", 0, "s2", ahead, ahead), acts)
		j.wants("accounted for", j.field("last"), ahead)
	})
}

// One fit replica is enough, on either side. A replica that was fit stays so. All members
// count except malformed ones.
func TestOneFitReplicaIsEnough(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for _, row := range []struct {
			name, acts string
			order      int // of the others
			fit        int // how many of them are
			want       string
			replicas   string
		}{
			{"of the one that acts", "d1", 1, 1, "gen 1 mine  own 2 dropped  others 1 watch  proof 5000 handover ", "3"},
			{"none of the one that acts", "d1", 1, 0, "gen 2 mine 1 own 2 dropped  others 3 watch 1 proof 0 handover ", "1"},
			{"of another", "d2", 3, 1, "gen 2 mine  own 2 dropped  others 3 watch 1 proof 30000 handover ", "1"},
			{"none of another", "d2", 3, 0, "gen 2 mine 1 own 2 dropped  others 3 watch 1 proof 0 handover ", "1"},
		} {
			j.stands("def", row.acts, "base", "d1", "gen", row.acts[1:], "top", "3")
			j.lives("1", row.order, -time.Hour, 0)
			j.lives("m", row.order, -time.Hour, row.fit)
			j.lives("z", row.order, -time.Hour, 0)
			testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "live:spoilt", "?").Err())
			j.wants(row.name, j.opens("b", "d2", 2, "", 0), row.want)
			j.wants(row.name+": replicas", j.said[10], row.replicas)
			j.wants(row.name+": a spoilt one", j.field("live:spoilt"), "")
		}
		j.stands("def", "d2", "base", "d1", "gen", "2", "top", "2")
		j.lives("a", 1, -time.Hour, 1)
		j.lives("b", 2, -time.Second, 1)
		j.wants("it was fit", j.opens("b", "d2", 2, "", 0), "gen 2 mine 1 own 2 dropped  others 1 watch 1 proof 0 handover ")

		j.stands("def", "d3", "base", "d1", "gen", "3", "top", "3")
		j.lives("1", 3, -time.Hour, 0)
		j.lives("m", 3, -time.Hour, 1)
		j.lives("z", 3, -time.Hour, 0)
		j.lives("b", 2, -time.Hour, 1)
		j.wants("a newer one acts", j.opens("b", "d2", 2, "", 0), "gen 3 mine  own 2 dropped  others 1 watch 1 proof 0 handover ")
		j.wants("it lapses no sooner", j.field("live:b"), "2 "+j.ms(90*time.Second)+" "+j.ms(-time.Hour)+" 1")

		j.stands("def", "d3", "base", "d1", "gen", "3", "top", "3")
		j.lives("a", 1, -time.Hour, 1)
		j.lives("b", 2, -time.Hour, 1)
		j.wants("the one that acts is dead, and two are fit", j.opens("b", "d2", 2, "", 0), "gen 2 mine 1 own 2 dropped  others 1 watch 1 proof 0 handover ")

		j.stands("def", "d1", "base", "d1", "gen", "1", "top", "2")
		j.lives("b", 2, -time.Hour, 1)
		j.wants("a newer one was away", j.opens("b", "d2", 2, "", -time.Millisecond), "gen 2 mine 1 own 2 dropped  others 0 watch  proof 0 handover ")

		j.stands("def", "d1", "base", "d1", "gen", "2", "top", "2")
		j.lives("a", 2, -time.Hour, 1)
		j.lives("b", 2, -time.Hour, 1)
		j.wants("of the same order, as after a loss", j.opens("b", "d2", 2, "", 0), "gen 2 mine  own 2 dropped  others 0 watch  proof 0 handover ")

		j.stands("def", "d2", "base", "d2", "gen", "2", "top", "3")
		j.lives("a", 3, -time.Hour, 1)
		j.wants("of a definition that is proven", j.opens("b", "d2", 0, "1", 0), "gen 2 mine 1 own 2 dropped  others 1 watch  proof 0 handover ")

		// A replica that learns another order counts among the replicas of that order.
		j.stands("def", "d2", "base", "d2", "gen", "2", "top", "3")
		j.lives("b", 3, -time.Second, 0)
		j.wants("another of its definition acts", j.opens("b", "d2", 3, "", 0), "gen 2 mine 1 own 2 dropped  others 0 watch  proof 0 handover ")
		j.wants("replicas", j.said[10], "1")
	})
}
