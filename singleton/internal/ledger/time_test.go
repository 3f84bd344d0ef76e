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
type timedJob struct {
	*timed
	said []string // what job_open has answered last
}

func jobToTheMillisecond(t *testing.T, test func(j *timedJob)) {
	t.Helper()
	toTheMillisecond(t, func(e *timed) { test(&timedJob{timed: e}) })
}

func (j *timedJob) keys(parts ...string) []string {
	return (&jobBench{env: j.env}).keys(parts...)
}

// stands writes the job again: its newest accounted tick is a second ago.
func (j *timedJob) stands(fields ...any) {
	j.Helper()
	testenv.Must(j.env, j.Raw.Del(j.Context(), j.keys("job", "open", "runs", "acts", "fence", "tomb:1")...).Err())
	testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), append([]any{"v", "1", "id", "7", "last", j.ms(-time.Second)}, fields...)...).Err())
}

// lives writes the record of a replica that started and asked first some time ago.
func (j *timedJob) lives(name, def string, since, from time.Duration) {
	j.Helper()
	testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "job"), "live:"+name, fmt.Sprintf("%s %s %s %s %s", j.ms(minute), j.ms(from), j.ms(since), def, name)).Err())
}

func (j *timedJob) field(name string) string {
	j.Helper()
	return j.Raw.HGet(j.Context(), j.key(jobName, "job"), name).Val()
}

// opens sends the request of a replica with a definition and a schedule. waited is empty unless another
// definition acted before. It returns which definition acts and fields of the answer after their names.
func (j *timedJob) opens(me, def string, age time.Duration, spec, waited string) string {
	j.Helper()
	answer := j.run("job_open", j.keys("job", "open", "runs", "acts"),
		"", "", "", 10, 3600000, me, def, age.Milliseconds(), me, "", spec, "", waited)
	f := strings.Split(strings.Trim(answer, "[]"), " ")
	if len(f) < 23 {
		j.Fatalf("job_open answers %s", answer)
	}
	j.said = f
	return fmt.Sprintf("%s acts, mine %s, changed %s, others %s, wait %s", f[21], f[10], f[11], f[16], f[17])
}

// An older schema is upgraded to this one, and a newer one is left.
func TestSchemasAreNotSetBack(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		for before, after := range map[string]string{"0": "1", "1": "1", "2": "2"} {
			j.stands("v", before, "next", "n")
			j.opens("", "", 0, "", "")
			j.wants("schema "+before+", TTL, and the next tick, which the caller does not know", j.field("v")+" "+j.field("retain")+" "+j.field("next"), after+" 3600000 n")
		}
		j.stands("v", "3")
		j.wants("schema 3", j.run("job_open", j.keys("job", "open", "runs", "acts"), "", "", "", 10, 3600000, "", "", 0, "", "", "", "", ""), "[11]")
	})
}

// The keys of a job after triggers, runs and renewals.
func TestRecordsToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		open, runs := j.key(jobName, "open"), j.key(jobName, "runs")
		only := func(what string, want map[string]string) string {
			j.Helper()
			all := j.Raw.HGetAll(j.Context(), open).Val()
			for tick, text := range all {
				j.wants(what, fmt.Sprint(jobFields(text)), fmt.Sprint(want))
				return tick
			}
			j.Fatalf("%s: there is no record", what)
			return ""
		}
		j.stands()
		testenv.Must(j.env, j.Raw.PExpire(j.Context(), j.key(jobName, "job"), time.Hour).Err())
		j.run("job_trigger", j.keys("job", "open", "tomb:1", "acts"), 5, 60000, "ann", "why")
		j.wants("the TTL of what is open", j.left(open), "1h0m0s")
		tick := only("a trigger", map[string]string{"run": "", "holder": "", "attempt": "0", "token": "0", "start": j.ms(0), "til": "0"})
		instant, err := strconv.ParseInt(tick, 10, 64)
		if testenv.Must(j.env, err); instant != -j.now.UnixMilli() {
			j.Errorf("the trigger is called %s", tick)
		}
		claims := func() string {
			j.Helper()
			return j.run("job_claim", j.keys("job", "open", "runs", "fence", "tomb:2"), jobMe, tick, 2000, j.ms(-time.Second), 3, "0", 10, "7", "h", "", "", "", "", "", "")
		}
		first := claims()
		if !strings.HasPrefix(first, "[1 ") {
			j.Errorf("a claim of the trigger: %s", first)
		}
		j.wants("the same claim again", claims(), first)

		for outcome, unsure := range map[string]string{"failed": "", "unknown": "1"} {
			j.stands()
			due := j.ms(-time.Second)
			testenv.Must(j.env, j.Raw.LPush(j.Context(), runs, fmt.Sprintf(`{"tick":%q,"outcome":%q}`, due, outcome)).Err())
			j.run("job_rerun", j.keys("job", "open", "runs", "tomb:1", "acts"), due, "0", 5, 60000, "ann", "why")
			record := map[string]string{"run": "", "holder": "", "attempt": "0", "token": "0", "start": j.ms(0), "til": "0"}
			if unsure != "" {
				record["unsure"] = unsure
			}
			only("a rerun after "+outcome, record)
		}

		j.stands("def", "d")
		due := j.ms(0)
		last := j.ms(-time.Second)
		j.run("job_claim", j.keys("job", "open", "runs", "fence", "tomb:1"), jobMe, due, 2000, last, 3, "0", 10, "7", "h", "", "", "", "", "", "d")
		token := strconv.FormatInt(j.now.UnixMicro(), 10)
		record := map[string]string{"run": jobMe, "holder": "h", "attempt": "1", "token": token, "start": j.ms(0), "til": j.ms(2 * time.Second), "held": j.ms(0), "seen": j.ms(0), "ttl": "2000"}
		only("a claim", record)
		start := j.ms(0)
		j.Pass(time.Second)
		j.now = time.Now()
		j.wants("renewal", j.run("job_renew", j.keys("open"), jobMe, due, 2000), "1")
		record["til"], record["seen"] = j.ms(2*time.Second), j.ms(0)
		only("a renewal", record)
		held := j.Raw.HGet(j.Context(), open, due).Val()
		for _, row := range []struct {
			clock     time.Duration // of the server, set since the claim
			took, end string
		}{
			{0, "300", j.ms(-700 * time.Millisecond)},
			{0, "0", start},
			{0, "1001", j.ms(0)}, // that cannot be
			{time.Hour, "300", j.ms(-700 * time.Millisecond)},
			{-time.Hour, "300", start},
		} {
			j.Bubble.StepClock(row.clock)
			j.run("job_complete", j.keys("job", "open", "runs"), jobMe, due, "succeeded", "", 10, token, row.took)
			j.Bubble.StepClock(-row.clock)
			entry := jobFields(j.Raw.LIndex(j.Context(), runs, 0).Val())
			j.wants(fmt.Sprintf("the end of %+v", row), entry["start"]+" "+entry["end"]+", "+j.field("hold"), start+" "+row.end+", "+start+" "+row.end)
			testenv.Must(j.env, j.Raw.HSet(j.Context(), open, due, held).Err())
		}
		for _, what := range []string{"completed", "completed twice"} {
			j.wants(what, j.run("job_complete", j.keys("job", "open", "runs"), jobMe, due, "succeeded", "", 10, token, ""), "1")
		}
		j.wants("completed otherwise", j.run("job_complete", j.keys("job", "open", "runs"), jobMe, due, "failed", "", 10, token, ""), "0")
		j.wants("the history", fmt.Sprint(jobFields(j.Raw.LIndex(j.Context(), runs, 0).Val())), fmt.Sprint(map[string]string{
			"tick": due, "attempt": "1", "holder": "h", "token": token, "start": start, "end": j.ms(0), "outcome": "succeeded", "error": "",
		}))
		j.wants("the hold, and the outcome", j.field("hold")+" "+j.field("outcome"), start+" "+j.ms(0)+" succeeded")
	})
}

// The keys of a job do not outlive it in its last millisecond.
func TestTheLastMillisecondOfALedger(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		j.stands()
		testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "open"), j.ms(0), jobRecord(jobMe, 1, j.now.Add(minute).UnixMilli())).Err())
		testenv.Must(j.env, j.Raw.PExpire(j.Context(), j.key(jobName, "job"), time.Millisecond).Err())
		j.Pass(500 * time.Microsecond)
		j.wants("completed", j.run("job_complete", j.keys("job", "open", "runs"), jobMe, j.ms(0), "succeeded", "", 10, "5", ""), "1")
		j.Pass(time.Minute)
		if left := j.Raw.Exists(j.Context(), j.keys("job", "runs")...).Val(); left != 0 {
			j.Errorf("of the job and its history %d keys are left", left)
		}
	})
}

// A ledger that was created, or repaired after a loss, is another ledger. A look changes
// nothing of that.
func TestIdentitiesOfLedgers(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		us := strconv.FormatInt(j.now.UnixMicro(), 10)
		asks := func(after, sure, ended string) {
			j.Helper()
			j.run("job_open", j.keys("job", "open", "runs", "acts"), after, sure, ended, 10, 3600000, "", "", 0, "", "", "", "", "")
		}
		for _, row := range []struct {
			name, after, sure, want string
		}{
			{"a look", "", "", "7"},
			{"less is known", j.ms(-2 * time.Second), "1", "7"},
			{"more is known, not for sure", j.ms(0), "", "7"},
			{"more is known", j.ms(0), "1", us},
		} {
			j.stands()
			asks(row.after, row.sure, "")
			j.wants(row.name, j.field("id"), row.want)
		}
		testenv.Must(j.env, j.Raw.Del(j.Context(), j.key(jobName, "job")).Err())
		asks("", "", "")
		j.wants("begun", j.field("id"), us)

		// Runs that are known to have ended end, and no later ones.
		j.stands()
		ended, later := j.ms(-time.Second), j.ms(-time.Second+time.Millisecond)
		for _, tick := range []string{ended, later} {
			testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "open"), tick, jobRecord(jobMe, 2, j.now.Add(minute).UnixMilli())).Err())
		}
		asks(ended, "1", ended)
		j.wants("open", fmt.Sprint(j.Raw.HKeys(j.Context(), j.key(jobName, "open")).Val()), "["+later+"]")
		j.wants("the history", fmt.Sprint(jobFields(j.Raw.LIndex(j.Context(), j.key(jobName, "runs"), 0).Val())), fmt.Sprint(map[string]string{
			"tick": ended, "attempt": "2", "holder": "h", "token": "5", "start": "1", "end": j.ms(0), "outcome": "unknown", "error": "it had ended before the server lost data",
		}))
	})
}

// The complete content of a job's status.
func TestStatusToTheMillisecond(t *testing.T) {
	jobToTheMillisecond(t, func(j *timedJob) {
		us := strconv.FormatInt(j.now.UnixMicro(), 10)
		status := func() string { return j.run("job_status", j.keys("job", "open")) }
		testenv.Must(j.env, j.Raw.Del(j.Context(), j.keys("job", "open")...).Err())
		j.wants("no ledger", status(), "[10]")
		j.stands("v", "3")
		j.wants("a newer schema", status(), "[11]")
		j.stands()
		last := j.ms(-time.Second)
		j.wants("little is known", status(), "[1 "+us+" "+last+"       0 1    7  0 0     ]")
		j.stands("born", "b", "ok", "o", "paused", "p", "freed", "f", "resumed", "r", "next", "n", "hold", "3 4", "halt", "5 6", "spec", "s", "control", "c", "cut", "d", "outcome", "failed", "def", "x")
		testenv.Must(j.env, j.Raw.HSet(j.Context(), j.key(jobName, "open"), "t", "{}").Err())
		j.wants("most is known", status(), "[1 "+us+" "+last+" o p b f r n 0 1  3 5 7 s 0 0 c d failed x  t {}]")
		j.lives("a", "x", -time.Hour, -time.Hour)
		member := func(name, def string, since time.Duration) string {
			return fmt.Sprintf(`{"def":%q,"identity":%q,"since":%q}`, def, name, j.ms(since))
		}
		fields := func(text string) string { return fmt.Sprint(jobMembers(j, text)) }
		j.wants("a replica", fields(strings.Split(status(), " ")[22]), fields("["+member("a", "x", -time.Hour)+"]"))
		j.lives("b", "y", -time.Second, -time.Second)
		answer := strings.Split(status(), " ")
		j.wants("how many replicas there are", answer[9]+" "+answer[16], "1 1")
		j.wants("replicas", fields(answer[22]), fields("["+member("a", "x", -time.Hour)+","+member("b", "y", -time.Second)+"]"))
		testenv.Must(j.env, j.Raw.HDel(j.Context(), j.key(jobName, "job"), "id", "live:a", "live:b").Err())
		j.wants("it has no id", status(), "[1 "+us+" "+last+" o p b f r n 0 1  3 5  s 0 0 c d failed x  t {}]")
	})
}

// jobMembers returns the replicas of a status in the order of their names.
func jobMembers(j *timedJob, text string) (all []map[string]string) {
	j.Helper()
	testenv.Must(j.env, json.Unmarshal([]byte(text), &all))
	slices.SortFunc(all, func(a, b map[string]string) int { return strings.Compare(a["identity"], b["identity"]) })
	return all
}
