package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
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
	return j.Run(script, keys, withChannels(script, args)...)
}

// stands writes the job again: its newest accounted tick is a second ago.
func (j *timedJob) stands(fields ...any) {
	j.Helper()
	testenv.Must(j, j.Raw.Del(j.Context(), j.keys("job", "runs", "acts", "fence", "tomb:1", "payloads")...).Err())
	testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], append([]any{"v", "1", "id", "7", "last", j.MS(-time.Second)}, fields...)...).Err())
}

// lives writes the record of a replica that started and asked first some time ago.
func (j *timedJob) lives(name, def string, since, from time.Duration) {
	j.Helper()
	testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "live:"+name, fmt.Sprintf("%s %s %s %s %s", j.MS(time.Minute), j.MS(from), j.MS(since), def, name)).Err())
}

func (j *timedJob) field(name string) string {
	j.Helper()
	return j.Raw.HGet(j.Context(), j.keys("job")[0], name).Val()
}

// opens sends the request of a replica with a definition and a schedule. waited is empty unless another
// definition acted before. It returns which definition acts and fields of the answer after their names.
func (j *timedJob) opens(me, def string, age time.Duration, spec, waited string) string {
	j.Helper()
	answer := j.run("job_open", j.keys("job", "runs", "acts", "payloads"),
		"", "", "", 10, 3600000, me, def, age.Milliseconds(), me, spec, "", waited, 2000)
	f := strings.Split(strings.Trim(answer, "[]"), " ")
	if len(f) < 20 {
		j.Fatalf("job_open answers %s", answer)
	}
	return fmt.Sprintf("%s acts, mine %s, changed %s, others %s, wait %s", f[17], f[9], f[10], f[13], f[14])
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
		j.Wants("little is known", status(), "[1 "+us+" "+last+"      0 1  7  0 0     ]")
		j.stands("born", "b", "ok", "o", "paused", "p", "spec", "s", "control", "c", "outcome", "failed", "def", "x", "ttl", "60")
		testenv.Must(j, j.Raw.HSet(j.Context(), j.keys("job")[0], "open", " t", "open:t", "{}").Err())
		j.Wants("most is known", status(), "[1 "+us+" "+last+" o p b   0 1  7 s 0 0 c failed x  60 t {}]")
		j.lives("a", "x", -time.Hour, -time.Hour)
		member := func(name, def string, since time.Duration) string {
			return fmt.Sprintf(`{"def":%q,"identity":%q,"since":%q}`, def, name, j.MS(since))
		}
		fields := func(text string) string { return fmt.Sprint(jobMembers(j, text)) }
		j.Wants("a replica", fields(strings.Split(status(), " ")[18]), fields("["+member("a", "x", -time.Hour)+"]"))
		j.lives("b", "y", -time.Second, -time.Second)
		answer := strings.Split(status(), " ")
		j.Wants("how many replicas there are", answer[8]+" "+answer[13], "1 1")
		j.Wants("replicas", fields(answer[18]), fields("["+member("a", "x", -time.Hour)+","+member("b", "y", -time.Second)+"]"))
		testenv.Must(j, j.Raw.HDel(j.Context(), j.keys("job")[0], "id", "live:a", "live:b").Err())
		j.Wants("it has no id", status(), "[1 "+us+" "+last+" o p b   0 1   s 0 0 c failed x  60 t {}]")
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
			{"the one that acts has no replica, and an older one waits", "d0", []life{{"d1", -4 * time.Second, -4 * time.Second}}, -time.Second, time.Second, "", fmt.Sprintf(d2, 1)},
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
			j.Wants(row.name, j.opens("b", "d2", row.age, "s", row.waited), row.want)
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
			j.Wants(row.name+": its record", j.field("live:b"), j.MS(till)+" "+j.MS(from)+" "+j.MS(-row.age)+" d2 b")
		}
	})
}

// A replica whose record has lapsed is forgotten. One whose record is too far ahead, as the clock was set
// back, is recorded again by any script that reads the replicas.
// Mutants: a bound is a millisecond off; the dead are kept.
func TestLapsedReplicasToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		const d1, ms = "d1 acts, mine , changed , others 1, wait 5000", time.Millisecond
		for _, row := range []struct {
			till, becomes time.Duration
			want          string
		}{
			{ms, ms, d1},
			{0, 0, "d2 acts, mine 1, changed , others 0, wait 0"},
			{90 * time.Second, 90 * time.Second, d1},
			{90*time.Second + ms, 90 * time.Second, d1},
		} {
			record := func(till time.Duration) string {
				return j.MS(till) + " " + j.MS(-time.Minute) + " " + j.MS(-time.Minute) + " d1 a"
			}
			for _, script := range []string{"job_open", "job_status"} {
				j.stands("def", "d1", "spec", "s", "live:a", record(row.till), "live:spoilt", "?")
				if script == "job_open" {
					j.Wants(row.till.String(), j.opens("b", "d2", 0, "s", ""), row.want)
				} else {
					j.run("job_status", j.keys("job", "runs"))
				}
				becomes := record(row.becomes)
				if row.becomes == 0 {
					becomes = ""
				}
				j.Wants(script+" "+row.till.String()+": its record", j.field("live:a"), becomes)
				j.Wants(script+" "+row.till.String()+": a spoilt one", j.field("live:spoilt"), "")
			}
		}
	})
}
