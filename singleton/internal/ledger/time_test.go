package ledger_test

import (
	"fmt"
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

func (j *timedJob) key(part string) string { return (&env{Env: j.Env}).key("job/draw", part) }

// stands writes the job again: its newest accounted tick is a second ago.
func (j *timedJob) stands(fields ...any) {
	j.Helper()
	testenv.Must(j, j.Raw.Del(j.Context(), j.key("job"), j.key("runs")).Err())
	testenv.Must(j, j.Raw.HSet(j.Context(), j.key("job"), append([]any{"v", "1", "id", "7", "last", j.MS(-time.Second)}, fields...)...).Err())
}

// lives writes the record of a replica that got its definition, and asked first and last, some time ago.
func (j *timedJob) lives(name, def string, since, first, seen time.Duration) {
	j.Helper()
	testenv.Must(j, j.Raw.HSet(j.Context(), j.key("job"), "live:"+name, fmt.Sprintf("%s %s %s %s %s %s", j.MS(time.Minute), j.MS(first), j.MS(seen), j.MS(since), def, name)).Err())
}

func (j *timedJob) field(name string) string {
	j.Helper()
	return j.Raw.HGet(j.Context(), j.key("job"), name).Val()
}

// opens sends the request of a replica with a definition. It returns which definition acts and fields of the answer
// after their names.
func (j *timedJob) opens(me, def string, age time.Duration) string {
	j.Helper()
	answer := j.Run("job_open", []string{j.key("job"), j.key("runs"), j.key("acts"), j.key("payloads")},
		"", "", "", 10, 3600000, me, def, age.Milliseconds(), me, "s", "", "", 2000, "", "channel")
	f := strings.Split(strings.Trim(answer, "[]"), " ")
	if len(f) < 21 {
		j.Fatalf("job_open answers %s", answer)
	}
	return fmt.Sprintf("%s acts, mine %s, changed %s, others %s, wait %s", f[17], f[9], f[10], f[13], f[14])
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
