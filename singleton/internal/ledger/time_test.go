package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A timedJob is a job whose keys are written, and whose scripts are run, to the millisecond.
type timedJob struct{ *testenv.Timed }

func jobToTheMillisecond(t *testing.T, test func(j *timedJob)) {
	t.Helper()
	scripts().ToTheMillisecond(t, func(e *testenv.Timed) { test(&timedJob{e}) })
}

func (j *timedJob) keys(parts ...string) []string {
	return (&jobBench{env: &env{Env: j.Env}}).keys(parts...)
}

func (j *timedJob) run(script string, keys []string, args ...any) string {
	j.Helper()
	return j.Run(script, keys, withChannel(script, args)...)
}

// stands writes the job again: its newest accounted tick is a second ago.
func (j *timedJob) stands(fields ...any) {
	j.Helper()
	testenv.Must(j, j.Raw.Del(j.Context(), j.keys("job", "runs", "acts", "fence", "tomb:1", "payloads")...).Err())
	testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], append([]any{"v", "1", "id", "7", "last", j.MS(-time.Second)}, fields...)...).Err())
}

// lives writes the record of a replica that got its definition, and asked first and last, some time ago.
func (j *timedJob) lives(name, def string, since, first, seen time.Duration) {
	j.Helper()
	testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:"+name, fmt.Sprintf("%s %s %s %s %s %s", j.MS(time.Minute), j.MS(first), j.MS(seen), j.MS(since), def, name)).Err())
}

func (j *timedJob) field(name string) string {
	j.Helper()
	return j.Raw.HGet(j.Context(), j.keys("job")[0], name).Val()
}

// opens sends the request of a replica with a definition. It returns which definition acts and fields of the answer
// after their names.
func (j *timedJob) opens(me, def string, age time.Duration) string {
	j.Helper()
	answer := j.run("job_open", j.keys("job", "runs", "acts", "payloads"),
		"", "", "", 10, 3600000, me, def, age.Milliseconds(), me, "s", "", "", 2000, "")
	f := strings.Split(strings.Trim(answer, "[]"), " ")
	if len(f) < 21 {
		j.Fatalf("job_open answers %s", answer)
	}
	return fmt.Sprintf("%s acts, mine %s, changed %s, others %s, wait %s", f[17], f[9], f[10], f[13], f[14])
}

// The more replicas there are, the less often does each look, and the longer does it count as alive.
func TestHowLongReplicasCount(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for replicas, till := range map[int]time.Duration{1: 90 * time.Second, 3: 90 * time.Second, 4: 2 * time.Minute, 11: 330 * time.Second, 12: 6 * time.Minute, 13: 6 * time.Minute} {
			j.stands("spec", "s", "def", "d1")
			for i := range replicas - 1 {
				j.lives(strconv.Itoa(i), "d1", -time.Hour, -time.Hour, 0)
			}
			j.Wants(fmt.Sprint(replicas, " replicas"), j.opens("b", "d1", 0), fmt.Sprintf("d1 acts, mine 1, changed , others 0, wait %d", till.Milliseconds()/3))
			j.Wants(fmt.Sprint(replicas, " replicas: the record"), j.field("live:b"), strings.Join([]string{j.MS(till), j.MS(0), j.MS(0), j.MS(0), "d1 b"}, " "))
		}
	})
}

// A look finds each change of what job_open has told, and keeps its replica alive for as long as before. The clock is not
// behind its last request.
func TestRefreshToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		now := strconv.FormatInt(j.Now.UnixMicro(), 10)
		minute := j.MS(-time.Minute)
		live := fmt.Sprintf("%s %s %s %s d me", j.MS(2*time.Minute), minute, j.MS(0), minute)
		begin := func() (look func() string) {
			j.stands("born", "b", "ok", "o", "id", "7", "spec", "s", "control", "", "outcome", "failed", "def", "d", "ttl", "60")
			testenv.Must(j, j.Raw.Del(j.Context(), j.keys("runs")[0]).Err())
			testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:me", live).Err())
			answer := j.run("job_open", j.keys("job", "runs", "acts", "payloads"),
				"", "", "", 10, 3600000, "me", "d", 60000, "me", "s", "", "", 60, "")
			mark := strings.Split(strings.Trim(answer, "[]"), " ")[20]
			testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:me", live).Err())
			return func() string { return j.run("job_refresh", j.keys("job", "runs"), "me", mark) }
		}
		look := begin()
		j.Wants("the same", look(), now)
		j.Wants("the replica", j.field("live:me"), live)
		earlier := fmt.Sprintf("%s %s %s %s d me", j.MS(time.Minute), minute, minute, minute)
		testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:me", earlier).Err())
		j.Wants("the same, a minute later", look(), now)
		j.Wants("the replica, a minute later", j.field("live:me"), live)
		for _, field := range markFields {
			look := begin()
			testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], field, "x").Err())
			j.Wants("another "+field, look(), "0")
		}
		look = begin()
		testenv.Must(j, j.Raw.LPush(j.Context(), j.keys("runs")[0], "{}").Err())
		j.Wants("another entry", look(), "0")
		look = begin()
		ahead := fmt.Sprintf("%s %s %s %s d me", j.MS(2*time.Minute), j.MS(0), j.MS(time.Millisecond), j.MS(0))
		testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:me", ahead).Err())
		j.Wants("the clock was set back", look(), "0")
		for _, till := range []string{"-1ms", "0s"} {
			look = begin()
			at, err := time.ParseDuration(till)
			testenv.Must(j, err)
			testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:me", fmt.Sprintf("%s %s %s %s d me", j.MS(at), minute, minute, minute)).Err())
			j.Wants("it counts as dead since "+till, look(), "0")
		}
		testenv.Must(j, j.Raw.HDel(j.Context(), j.keys("job")[0], "live:me").Err())
		j.Wants("it was forgotten", look(), "0")
	})
}

// The complete content of a job's status.
func TestStatusToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		us := strconv.FormatInt(j.Now.UnixMicro(), 10)
		status := func() string { return j.run("job_status", j.keys("job", "runs")) }
		testenv.Must(j, j.Raw.Del(j.Context(), j.keys("job")...).Err())
		j.Wants("no ledger", status(), "[10]")
		j.stands("v", "3")
		j.Wants("a newer schema", status(), "[11]")
		j.stands()
		last := j.MS(-time.Second)
		j.Wants("little is known", status(), "[1 "+us+" "+last+"      0 1  7  0 0      ]")
		j.stands("born", "b", "ok", "o", "paused", "p", "spec", "s", "control", "c", "outcome", "failed", "def", "x", "ttl", "60")
		testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "open", " t", "open:t", "{}").Err())
		j.Wants("most is known", status(), "[1 "+us+" "+last+" o p b   0 1  7 s 0 0 c failed x  60  t {}]")
		j.lives("a", "x", -time.Hour, -time.Hour, 0)
		member := func(name, def string, since time.Duration) string {
			return fmt.Sprintf(`{"def":%q,"identity":%q,"since":%q}`, def, name, j.MS(since))
		}
		fields := func(text string) string { return fmt.Sprint(jobMembers(j, text)) }
		j.Wants("a replica", fields(strings.Split(status(), " ")[18]), fields("["+member("a", "x", -time.Hour)+"]"))
		j.lives("b", "y", -time.Second, -time.Second, 0)
		answer := strings.Split(status(), " ")
		j.Wants("how many replicas there are", answer[8]+" "+answer[13], "1 1")
		j.Wants("replicas", fields(answer[18]), fields("["+member("a", "x", -time.Hour)+","+member("b", "y", -time.Second)+"]"))
		testenv.Must(j, j.Raw.HDel(j.Context(), j.keys("job")[0], "id", "live:a", "live:b").Err())
		j.Wants("it has no id", status(), "[1 "+us+" "+last+" o p b   0 1   s 0 0 c failed x  60  t {}]")
	})
}

// jobMembers returns the replicas of a status in the order of their names.
func jobMembers(j *timedJob, text string) (all []map[string]string) {
	j.Helper()
	testenv.Must(j, json.Unmarshal([]byte(text), &all))
	slices.SortFunc(all, func(a, b map[string]string) int { return strings.Compare(a["identity"], b["identity"]) })
	return all
}

// The rule of part_definitions.lua, row by row. Replica b of definition d2 looks beside replicas of
// other definitions.
// Mutants: each bound is a millisecond off; a start is enough; the oldest definition acts; a dead replica is proven.
func TestWhichDefinitionActs(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const old, ms, sec = -time.Hour, time.Millisecond, time.Second
		type life struct {
			def                string
			since, first, seen time.Duration
		}
		const d1, d2 = "d1 acts, mine , changed , others %d, wait %d", "d2 acts, mine 1, changed , others %d, wait %d"
		anHour := []life{{"d1", old, old, 0}}
		for _, row := range []struct {
			name  string
			acts  string
			lives []life
			first time.Duration // request of b; 0: this one
			age   time.Duration
			want  string
		}{
			{"it is new", "d1", anHour, 0, 0, fmt.Sprintf(d1, 1, 5000)},
			{"it is new here, and had started before", "d1", anHour, 0, 10 * sec, fmt.Sprintf(d1, 1, 5000)},
			{"it is new for a millisecond more", "d1", anHour, ms - 5*sec, 5 * sec, fmt.Sprintf(d1, 1, 1)},
			{"it is proven", "d1", anHour, -5 * sec, 5 * sec, fmt.Sprintf(d2, 1, 5000)},
			{"it is proven, and older", "d1", []life{{"d1", -60 * sec, -60 * sec, 0}}, old, 60*sec + ms, fmt.Sprintf(d1, 1, 5000)},
			{"it was new until now, and is older", "d1", []life{{"d1", -60 * sec, -60 * sec, 0}}, -5 * sec, 60*sec + ms, fmt.Sprintf(d1, 1, 5000)},
			{"they are as old", "d1", []life{{"d1", -60 * sec, -60 * sec, 0}}, -60 * sec, 60 * sec, fmt.Sprintf(d2, 1, 5000)},
			{"they are as old, and the name of the other one is greater", "d3", []life{{"d3", -60 * sec, -60 * sec, 0}}, -60 * sec, 60 * sec, "d3 acts, mine , changed , others 1, wait 5000"},
			{"the other one has restarted", "d1", []life{{"d1", -sec, -sec, 0}, {"d1", old, old, 0}}, -10 * sec, 10 * sec, fmt.Sprintf(d2, 2, 5000)},
			{"it has restarted", "d1", []life{{"d1", -60 * sec, -60 * sec, 0}, {"d2", old, old, 0}}, -30 * sec, 30 * sec, fmt.Sprintf(d1, 2, 5000)},
			{"it is new, and another of its replicas is proven, which has died", "d1", []life{{"d1", old, old, 0}, {"d2", -60 * sec, -10 * sec, -5 * sec}}, 0, 0, fmt.Sprintf(d2, 1, 5000)},
			{"it is new, and another of its replicas was not heard for long enough", "d1", []life{{"d1", old, old, 0}, {"d2", -60 * sec, -10 * sec, -5*sec - ms}}, 0, 0, fmt.Sprintf(d1, 2, 5000)},
			{"it is new, and another of its replicas has asked once", "d1", []life{{"d1", old, old, 0}, {"d2", -60 * sec, -60 * sec, -60 * sec}}, 0, 0, fmt.Sprintf(d1, 2, 5000)},
			{"the other one is new", "d1", []life{{"d1", -sec, -sec, 0}}, -5 * sec, 5 * sec, fmt.Sprintf(d2, 1, 5000)},
			{"both are new", "d1", []life{{"d1", -4 * sec, -4 * sec, 0}}, -sec, sec, fmt.Sprintf(d1, 1, 4000)},
			{"the one that acts has no replica", "d1", nil, 0, 60 * sec, fmt.Sprintf(d1, 1, 5000)},
			{"the one that acts has no replica, and another one is proven", "d0", anHour, 0, 0, fmt.Sprintf(d1, 1, 5000)},
			{"nothing acts", "", nil, 0, 0, fmt.Sprintf(d2, 0, 30000)},
			{"nothing acts, and both are new", "", []life{{"d1", -4 * sec, -4 * sec, 0}}, 0, 60 * sec, fmt.Sprintf(d2, 1, 5000)},
			{"nothing acts, and the other one is proven", "", anHour, 0, 60 * sec, fmt.Sprintf(d1, 1, 5000)},
			{"it acts", "d2", []life{{"d2", old, old, 0}}, 0, 0, fmt.Sprintf(d2, 0, 30000)},
			{"it acts, is new here, and an older one is proven", "d2", anHour, 0, 0, fmt.Sprintf(d1, 1, 5000)},
			{"it acts, and a newer one is new", "d2", []life{{"d1", -sec, -sec, 0}}, old, time.Hour, fmt.Sprintf(d2, 1, 5000)},
		} {
			fields := []any{"spec", "s"}
			if row.acts != "" {
				fields = append(fields, "def", row.acts)
			}
			j.stands(fields...)
			till := 90 * sec
			for i, l := range row.lives {
				j.lives(fmt.Sprint("a", i), l.def, l.since, l.first, l.seen)
				if l.def != "d2" {
					till = 15 * sec
				}
			}
			if row.first != 0 {
				j.lives("b", "d2", -row.age, row.first, row.first)
			}
			j.Wants(row.name, j.opens("b", "d2", row.age), row.want)
			j.Wants(row.name+": its record", j.field("live:b"), strings.Join([]string{j.MS(till), j.MS(row.first), j.MS(0), j.MS(-row.age), "d2 b"}, " "))
		}
		// A request that was sent again is late: the replica does not get younger. Another definition begins anew.
		for _, row := range []struct {
			def            string
			since, becomes time.Duration
		}{{"d2", -60 * sec, -60 * sec}, {"d2", -40 * sec, -50 * sec}, {"d1", -60 * sec, -50 * sec}} {
			j.stands("def", "d1", "spec", "s")
			j.lives("b", row.def, row.since, -60*sec, 0)
			j.opens("b", "d2", 50*sec)
			j.Wants("since when it has its definition", strings.Fields(j.field("live:b"))[3], j.MS(row.becomes))
		}
	})
}

// A replica whose record has lapsed is forgotten. If the clock was set back since its newest request, any script that
// reads the replicas sets its times back by as much.
// Mutants: a bound is a millisecond off; the dead are kept.
func TestLapsedReplicasToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const ms = time.Millisecond
		for till, ahead := range map[time.Duration]time.Duration{ms: 0, 0: 0, time.Minute: ms, time.Hour: time.Hour - ms} {
			record := func(back time.Duration) string {
				return strings.Join([]string{j.MS(till - back), j.MS(ahead - 60000*ms - back), j.MS(ahead - back), j.MS(ahead - 60000*ms - back), "d1 a"}, " ")
			}
			for _, script := range []string{"job_open", "job_status"} {
				j.stands("def", "d1", "spec", "s", "live:a", record(0), "live:spoilt", "?")
				if script == "job_open" {
					j.Wants(till.String(), j.opens("b", "d2", 0), "d1 acts, mine , changed , others 1, wait 5000")
				} else {
					j.run("job_status", j.keys("job", "runs"))
				}
				want := record(ahead)
				if till == 0 {
					want = ""
				}
				j.Wants(script+" "+till.String()+": its record", j.field("live:a"), want)
				j.Wants(script+" "+till.String()+": a spoilt one", j.field("live:spoilt"), "")
			}
		}
	})
}
