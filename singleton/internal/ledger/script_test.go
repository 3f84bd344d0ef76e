package ledger_test

import (
	"crypto/sha1" //nolint:gosec // as the script
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A jobState is the state of a job when one of its scripts is run for the tick T.
type jobState struct {
	ledger  string // none, newer (schema), fresh, used
	tick    string // due: unaccounted; ended; or the record's: mine, mine dead, live, dead, abandoned
	attempt int    // of the record
	earlier string // an earlier open tick: "", live, dead
	tomb    string // "", abandoned, ended
	paused  bool
	gen     string // 1: definition c acts; 2: definition d, of which a replica is alive; 3: d, without one
	spec    string // the schedule of definition d
}

// def returns the acting definition.
func (s jobState) def() string {
	if s.gen == "1" {
		return "c"
	}
	return "d"
}

func (s jobState) hasRecord() bool { return s.tick != "due" && s.tick != "ended" }
func (s jobState) isMine() bool    { return s.tick == "mine" || s.tick == "mine dead" }

func jobStates() []jobState {
	all := []jobState{ // they matter only to job_open
		{ledger: "used", tick: "due", gen: "2", spec: "s"}, {ledger: "used", tick: "due", gen: "3", spec: "s"}, {ledger: "used", tick: "due", gen: "3"},
	}
	for _, tomb := range []string{"", "abandoned", "ended"} {
		for _, ledger := range []string{"none", "newer", "fresh"} {
			all = append(all, jobState{ledger: ledger, tick: "due", tomb: tomb, gen: "2"})
		}
		for _, tick := range []string{"due", "ended", "mine", "mine dead", "live", "dead", "abandoned"} {
			for _, attempt := range []int{1, 2} {
				for _, earlier := range []string{"", "live", "dead"} {
					for _, paused := range []bool{false, true} {
						for _, gen := range []string{"1", "2"} {
							s := jobState{"used", tick, attempt, earlier, tomb, paused, gen, ""}
							switch odd := tomb != "" || paused || gen == "1"; {
							case !s.hasRecord() && attempt == 2:
							case odd && (earlier == "live" || attempt == 2):
							case tomb != "" && (paused || gen == "1" || earlier != ""):
							default:
								all = append(all, s)
							}
						}
					}
				}
			}
		}
	}
	return all
}

const (
	jobMe    = "nl1:ALIVE.1/me"
	jobOther = "nl1:OTHER.1/other"
	jobName  = "job/draw"
)

// A jobBench is a job whose state is written and read directly.
type jobBench struct {
	*env
	now, tick, last int64 // ms; last is the newest accounted tick
}

func (b *jobBench) part(part string) string { return b.key(jobName, part) }

// markFields are those of part_mark.
var markFields = strings.Fields("v last ok paused born id spec control outcome def ttl open")

// mark returns that of part_mark.
func (b *jobBench) mark() string {
	var parts []string
	for _, value := range b.Raw.HMGet(b.Context(), b.part("job"), markFields...).Val() {
		found, _ := value.(string)
		parts = append(parts, found)
	}
	parts = append(parts, strconv.FormatInt(b.Raw.HLen(b.Context(), b.part("job")).Val(), 10))
	parts = append(parts, b.Raw.LRange(b.Context(), b.part("runs"), 0, 0).Val()...)
	return fmt.Sprintf("%x", sha1.Sum([]byte(strings.Join(parts, "\n")))) //nolint:gosec // as the script
}

func (b *jobBench) keys(parts ...string) []string {
	var keys []string
	for _, part := range parts {
		keys = append(keys, b.part(part))
	}
	return keys
}

func jobRecord(run string, attempt int, til int64) string {
	fields := map[string]any{
		"run": run, "holder": "h", "attempt": strconv.Itoa(attempt), "token": "5", "start": "1", "til": strconv.FormatInt(til, 10), "later": "kept",
	}
	if run == "" {
		fields["tries"] = []any{map[string]string{"attempt": strconv.Itoa(attempt), "error": "boom"}}
	}
	text, _ := json.Marshal(fields)
	return string(text)
}

func (b *jobBench) establish(s jobState) {
	b.Helper()
	at, err := b.Raw.Time(b.Context()).Result()
	testenv.Must(b.env, err)
	b.now = at.UnixMilli()
	b.tick = b.now - 1000
	b.last = b.tick - 500
	if s.tick != "due" {
		b.last = b.tick
	}
	last := b.last
	ctx := b.Context()
	_, err = b.Raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, b.keys("job", "runs", "acts", "fence", "tomb:1", "payloads")...)
		p.Set(ctx, b.part("fence"), "1000000000000000", time.Hour)
		til := b.now + 60_000
		ticks := ""
		open := func(tick int64, record string) {
			ticks += fmt.Sprint(" ", tick)
			p.HSet(ctx, b.part("job"), "open", ticks, fmt.Sprint("open:", tick), record)
		}
		switch s.ledger {
		case "none":
		case "newer":
			p.HSet(ctx, b.part("job"), "v", "3", "last", last)
		case "fresh":
			p.HSet(ctx, b.part("job"), "v", "1", "last", last, "born", last, "def", s.def(), "id", "7", "made", "5", "retain", jobRetain.Milliseconds())
		case "used":
			p.HSet(ctx, b.part("job"), "v", "1", "last", last, "def", s.def(), "id", "7", "made", "5", "retain", jobRetain.Milliseconds(), "later", "kept")
			if s.gen == "2" {
				p.HSet(ctx, b.part("job"), "ok", b.tick-5000)
			}
			if s.spec != "" {
				p.HSet(ctx, b.part("job"), "spec", s.spec)
			}
			p.LPush(ctx, b.part("runs"), `{"tick":"1","outcome":"succeeded"}`)
			if s.tick == "ended" {
				p.LPush(ctx, b.part("runs"), fmt.Sprintf(`{"tick":"%d","outcome":"failed"}`, b.tick))
			}
			p.HSet(ctx, b.part("job"), "live:dead", fmt.Sprintf("%d 1 1 1 x dead", b.now))
			if s.gen == "2" {
				p.HSet(ctx, b.part("job"), "live:r9", fmt.Sprintf("%d 1 1 1 d nine", til))
			}
		}
		if s.paused {
			p.HSet(ctx, b.part("job"), "paused", b.now-10)
		}
		switch s.tick {
		case "mine":
			open(b.tick, jobRecord(jobMe, s.attempt, til))
		case "mine dead":
			open(b.tick, jobRecord(jobMe, s.attempt, b.now-10))
		case "live":
			open(b.tick, jobRecord(jobOther, s.attempt, til))
		case "dead":
			open(b.tick, jobRecord(jobOther, s.attempt, b.now)) // since now
		case "abandoned":
			open(b.tick, jobRecord("", s.attempt, 0))
		}
		switch s.earlier {
		case "live":
			open(b.tick-800, jobRecord(jobOther, 1, til))
		case "dead":
			open(b.tick-800, jobRecord(jobOther, 1, b.now))
		}
		if !s.paused {
			for _, part := range []string{"job", "runs"} {
				p.PExpire(ctx, b.part(part), time.Hour)
			}
		}
		if s.tomb != "" {
			p.Set(ctx, b.part("tomb:1"), s.tomb, time.Minute)
		}
		return nil
	})
	testenv.Must(b.env, err)
}

// A jobPicture is a job's keys. Of a replica it has the name alone, and of an open run whether it is held.
type jobPicture struct {
	job, open  map[string]string
	live       []string
	tomb, rest string
	ttl        map[string]time.Duration
}

func (b *jobBench) picture() jobPicture {
	b.Helper()
	ctx := b.Context()
	var job *redis.MapStringStringCmd
	var tomb *redis.StringCmd
	var rest [4]redis.Cmder
	ttls := map[string]*redis.DurationCmd{}
	_, _ = b.Raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		job, tomb = p.HGetAll(ctx, b.part("job")), p.Get(ctx, b.part("tomb:1"))
		rest = [...]redis.Cmder{
			p.LRange(ctx, b.part("runs"), 0, -1), p.LRange(ctx, b.part("acts"), 0, -1), p.HGetAll(ctx, b.part("payloads")), p.Get(ctx, b.part("fence")),
		}
		for _, part := range []string{"job", "runs", "fence", "tomb:1"} {
			ttls[part] = p.PTTL(ctx, b.part(part))
		}
		return nil
	})
	s := jobPicture{
		job: job.Val(), open: map[string]string{}, live: []string{}, tomb: tomb.Val(), rest: fmt.Sprint(rest), ttl: map[string]time.Duration{},
	}
	for field := range s.job {
		if replica, ok := strings.CutPrefix(field, "live:"); ok {
			s.live = append(s.live, replica)
			delete(s.job, field)
		}
	}
	for tick := range strings.FieldsSeq(s.job["open"]) {
		record := jobFields(s.job["open:"+tick])
		delete(s.job, "open:"+tick)
		record["til"] = strconv.FormatBool(record["til"] > strconv.FormatInt(b.now, 10))
		s.open[tick] = fmt.Sprint(record)
	}
	slices.Sort(s.live)
	for part, ttl := range ttls {
		s.ttl[part] = ttl.Val()
	}
	return s
}

func jobFields(text string) map[string]string {
	fields := map[string]string{}
	_ = json.Unmarshal([]byte(text), &fields)
	delete(fields, "tries")  // TestAttemptsAreKept looks at them
	delete(fields, "asked")  // TestRerun looks at it
	delete(fields, "cancel") // TestCancel looks at it
	return fields
}

func (s jobPicture) same(o jobPicture) bool {
	s.ttl, o.ttl = nil, nil
	return reflect.DeepEqual(s, o)
}

// Every script of the ledger runs twice in every state of a job: the state stays, and the
// second answer is the first or the declared one. The first answer is that of the rules in answers, and the first run
// keeps the guarantees that check asserts. What exactly a script writes is in the scenarios.
func TestJobScriptsTwiceInEveryState(t *testing.T) {
	t.Parallel()
	requests := map[string][]jobRequest{}
	for _, r := range jobRequests() {
		requests[r.script] = append(requests[r.script], r)
	}
	for name, requests := range requests {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(e *env) {
				b := &jobBench{env: e}
				source := scripts().Source(e, name)
				sha := e.Raw.ScriptLoad(e.Context(), source).Val()
				answers := map[string]int{}
				states, step := jobStates(), 1
				if e.Bubble == nil {
					step = testenv.Size(5, 1) // a real server gets another fifth of the states for each request
				}
				for i, r := range requests {
					for _, state := range every(states, i%step, step) {
						answers[b.twice(sha, r, state)]++
						if e.Failed() {
							return // the other states would fail in the same way
						}
					}
				}
				if len(answers) == 1 || answers["1"] < 5 {
					e.Errorf("the answers were %v", answers)
				}
			})
		})
	}
}

// every returns every step-th of the states.
func every(states []jobState, from, step int) (some []jobState) {
	for i := from; i < len(states); i += step {
		some = append(some, states[i])
	}
	return some
}

// twice runs a script twice in a state, and returns its first answer.
func (b *jobBench) twice(sha string, r jobRequest, state jobState) string {
	b.Helper()
	b.establish(state)
	before := b.picture()
	keys, args := b.keys(r.keys...), withChannel(r.script, r.args(b, state))
	first, err1 := b.Raw.EvalSha(b.Context(), sha, keys, args...).Result()
	middle := b.picture()
	second, err2 := b.Raw.EvalSha(b.Context(), sha, keys, args...).Result()
	after := b.picture()
	where := fmt.Sprintf("%s with %+v", r.name, state)
	if err1 != nil || err2 != nil {
		b.Errorf("%s: %v, %v", where, err1, err2)
		return ""
	}
	if !middle.same(after) {
		b.Errorf("%s: twice changed\n%+v to\n%+v", where, middle, after)
	}
	one, two := jobAnswer(first), jobAnswer(second)
	if one != two && two != declaredSecond(r.script, one) {
		b.Errorf("%s: answers %v, then %v", where, first, second)
	}
	b.check(where, r, state, before, middle, first)
	return one
}

// jobAnswer returns the code of an answer.
func jobAnswer(answer any) string {
	if list, ok := answer.([]any); ok {
		return fmt.Sprint(list[0])
	}
	if _, ok := answer.(string); ok {
		return "1" // the time of the server
	}
	return fmt.Sprint(answer)
}

// declaredSecond returns the second answer of a script if it is not the first.
func declaredSecond(script, first string) string {
	switch {
	case script == "job_abandon" && first == "1", script == "job_leave" && first == "1":
		return "0"
	case script == "job_cancel" && first == "1":
		return "17" // unless it is held
	case script == "job_forget" && first == "1":
		return "10"
	case script == "job_skip" && first == "1", script == "job_claim" && first == "9":
		return "3"
	}
	return first
}
