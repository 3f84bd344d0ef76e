package lockcore_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// A jobState is how a job stands when one of its scripts is run for the tick T.
type jobState struct {
	ledger  string // none, newer (schema), fresh, used
	tick    string // due: unaccounted; ended; or the record's: mine, mine dead, live, dead, given up
	attempt int    // of the record
	earlier string // an earlier open tick: "", live, dead
	tomb    string // "", given up, ended
	paused  bool
	gen     string // the present generation
}

func (s jobState) String() string {
	return fmt.Sprintf("ledger %s, tick %s, attempt %d, earlier %q, tomb %q, paused %v, gen %s",
		s.ledger, s.tick, s.attempt, s.earlier, s.tomb, s.paused, s.gen)
}

func (s jobState) hasRecord() bool { return s.tick != "due" && s.tick != "ended" }
func (s jobState) isMine() bool    { return s.tick == "mine" || s.tick == "mine dead" }

func jobStates() []jobState {
	var all []jobState
	for _, tomb := range []string{"", "given up", "ended"} {
		for _, ledger := range []string{"none", "newer", "fresh"} {
			all = append(all, jobState{ledger: ledger, tick: "due", tomb: tomb, gen: "2"})
		}
		for _, tick := range []string{"due", "ended", "mine", "mine dead", "live", "dead", "given up"} {
			for _, attempt := range []int{1, 2} {
				for _, earlier := range []string{"", "live", "dead"} {
					for _, paused := range []bool{false, true} {
						for _, gen := range []string{"1", "2"} {
							s := jobState{"used", tick, attempt, earlier, tomb, paused, gen}
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
	jobMe    = "nl1:ALIVE.1.u/me"
	jobOther = "nl1:OTHER.1.u/other"
	jobName  = "job/draw"
)

// A jobBench is a job whose state is set up and looked at directly.
type jobBench struct {
	*env
	now, tick int64 // ms
}

func (b *jobBench) part(part string) string { return b.key(jobName, part) }

func (b *jobBench) keys(parts ...string) []string {
	var keys []string
	for _, part := range parts {
		keys = append(keys, b.part(part))
	}
	return keys
}

func jobRecord(run string, attempt int, til int64) string {
	text, _ := json.Marshal(map[string]string{
		"run": run, "holder": "h", "attempt": strconv.Itoa(attempt), "token": "5", "start": "1", "til": strconv.FormatInt(til, 10), "later": "kept",
	})
	return string(text)
}

func (b *jobBench) establish(s jobState) {
	b.Helper()
	at, err := b.raw.Time(b.Context()).Result()
	must(b.env, err)
	b.now = at.UnixMilli()
	b.tick = b.now - 1000
	last := b.tick - 500
	if s.tick != "due" {
		last = b.tick
	}
	ctx := b.Context()
	_, err = b.raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, b.keys("job", "open", "runs", "fence", "live", "tomb:1")...)
		p.Set(ctx, b.part("fence"), "1000000000000000", time.Hour)
		switch s.ledger {
		case "none":
		case "newer":
			p.HSet(ctx, b.part("job"), "v", "4", "last", last)
		case "fresh":
			p.HSet(ctx, b.part("job"), "v", "2", "last", last, "born", last, "gen", s.gen, "def", "d")
		case "used":
			p.HSet(ctx, b.part("job"), "v", "2", "last", last, "ok", b.tick-5000, "gen", s.gen, "def", "d", "later", "kept")
			p.LPush(ctx, b.part("runs"), `{"tick":"1","outcome":"succeeded"}`)
		}
		if s.paused {
			p.HSet(ctx, b.part("job"), "paused", b.now-10)
		}
		til := b.now + 60_000
		switch s.tick {
		case "mine":
			p.HSet(ctx, b.part("open"), b.tick, jobRecord(jobMe, s.attempt, til))
		case "mine dead":
			p.HSet(ctx, b.part("open"), b.tick, jobRecord(jobMe, s.attempt, b.now-10))
		case "live":
			p.HSet(ctx, b.part("open"), b.tick, jobRecord(jobOther, s.attempt, til))
		case "dead":
			p.HSet(ctx, b.part("open"), b.tick, jobRecord(jobOther, s.attempt, b.now-10))
		case "given up":
			p.HSet(ctx, b.part("open"), b.tick, jobRecord("", s.attempt, 0))
		}
		switch s.earlier {
		case "live":
			p.HSet(ctx, b.part("open"), b.tick-800, jobRecord(jobOther, 1, til))
		case "dead":
			p.HSet(ctx, b.part("open"), b.tick-800, jobRecord(jobOther, 1, b.now-10))
		}
		if !s.paused {
			for _, part := range []string{"job", "open", "runs"} {
				p.PExpire(ctx, b.part(part), time.Hour)
			}
		}
		if s.tomb != "" {
			p.Set(ctx, b.part("tomb:1"), s.tomb, time.Minute)
		}
		return nil
	})
	must(b.env, err)
}

// A jobPicture is a job's keys; what depends on the time of day is left out.
type jobPicture struct {
	job, open map[string]string
	runs      []string
	fence     string
	live      []string
	tomb      string
	ttl       map[string]time.Duration
}

func (b *jobBench) picture() jobPicture {
	b.Helper()
	ctx := b.Context()
	var job, open *redis.MapStringStringCmd
	var runs, live *redis.StringSliceCmd
	var fence, tomb *redis.StringCmd
	ttls := map[string]*redis.DurationCmd{}
	_, _ = b.raw.Pipelined(ctx, func(p redis.Pipeliner) error {
		job, open, runs = p.HGetAll(ctx, b.part("job")), p.HGetAll(ctx, b.part("open")), p.LRange(ctx, b.part("runs"), 0, -1)
		live, fence, tomb = p.HKeys(ctx, b.part("live")), p.Get(ctx, b.part("fence")), p.Get(ctx, b.part("tomb:1"))
		for _, part := range []string{"job", "open", "runs", "fence", "live", "tomb:1"} {
			ttls[part] = p.PTTL(ctx, b.part(part))
		}
		return nil
	})
	s := jobPicture{job: job.Val(), open: map[string]string{}, fence: fence.Val(), tomb: tomb.Val(), live: live.Val(), ttl: map[string]time.Duration{}}
	for _, field := range []string{"freed", "resumed", "paused"} {
		if _, ok := s.job[field]; ok {
			s.job[field] = "at some time"
		}
	}
	for tick, text := range open.Val() {
		record := jobFields(text)
		record["til"] = strconv.FormatBool(record["til"] > strconv.FormatInt(b.now, 10))
		if record["start"] != "1" {
			record["start"] = "later"
		}
		s.open[tick] = fmt.Sprint(record)
	}
	for _, text := range runs.Val() {
		entry := jobFields(text)
		delete(entry, "end")
		delete(entry, "start")
		s.runs = append(s.runs, fmt.Sprint(entry))
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
	return fields
}

func (s jobPicture) same(o jobPicture) bool {
	return maps.Equal(s.job, o.job) && maps.Equal(s.open, o.open) && slices.Equal(s.runs, o.runs) &&
		s.fence == o.fence && slices.Equal(s.live, o.live) && s.tomb == o.tomb
}

// A jobRequest is a script with its arguments, made for the state at hand.
type jobRequest struct {
	name   string
	script string
	keys   []string
	args   func(b *jobBench, s jobState) []any

	most    int    // of a claim
	overlap bool   // of a claim
	skip    bool   // of a claim
	stale   bool   // of a claim: the caller's view is old
	gen     string // of a claim
	late    bool   // of a claim
}

func claimRequest(r jobRequest) jobRequest {
	r.script, r.keys = "job_claim", []string{"job", "open", "runs", "fence", "tomb:1"}
	r.args = func(b *jobBench, _ jobState) []any {
		last := b.tick - 500
		if r.stale {
			last--
		}
		overlap, until := "0", ""
		if r.overlap {
			overlap = "1"
		}
		if r.late {
			until = strconv.FormatInt(b.now-1, 10)
		}
		skipped := []any{"", "", "", ""}
		if r.skip {
			skipped = []any{b.tick - 400, b.tick - 300, 2, "missed"}
		}
		args := []any{jobMe, b.tick, 60_000, last, r.most, overlap, 10, 3_600_000, "me"}
		return append(append(args, skipped...), until, r.gen)
	}
	return r
}

func jobRequests() []jobRequest {
	openKeys := []string{"job", "open", "runs", "live", "tomb:1"}
	opening := func(me, start, gen string) func(b *jobBench, s jobState) []any {
		return func(*jobBench, jobState) []any {
			return []any{"", "", "", 10, 3_600_000, me, "other", gen, start, 90_000, "77", 300_000}
		}
	}
	fixed := func(args ...any) func(*jobBench, jobState) []any {
		return func(*jobBench, jobState) []any { return args }
	}
	of := func(args ...any) func(*jobBench, jobState) []any {
		return func(b *jobBench, _ jobState) []any { return append([]any{jobMe, b.tick}, args...) }
	}
	return []jobRequest{
		claimRequest(jobRequest{name: "claim", most: 2}),
		claimRequest(jobRequest{name: "claim at most once", most: 1}),
		claimRequest(jobRequest{name: "claim with a skip", most: 2, skip: true}),
		claimRequest(jobRequest{name: "claim overlapping", most: 2, overlap: true}),
		claimRequest(jobRequest{name: "claim on an old view", most: 2, stale: true}),
		claimRequest(jobRequest{name: "claim of generation 2", most: 3, gen: "2"}),
		claimRequest(jobRequest{name: "claim too late", most: 2, late: true}),
		{name: "complete", script: "job_complete", keys: []string{"job", "open", "runs", "tomb:1"}, args: of("succeeded", "", 10, 300_000, "5")},
		{name: "fail", script: "job_complete", keys: []string{"job", "open", "runs", "tomb:1"}, args: of("failed", "boom", 10, 300_000, "5")},
		{name: "abandon", script: "job_abandon", keys: []string{"job", "open", "tomb:1"}, args: of("1", 300_000)},
		{name: "abandon, not begun", script: "job_abandon", keys: []string{"job", "open", "tomb:1"}, args: of("0", 300_000)},
		{name: "renew", script: "job_renew", keys: []string{"open"}, args: of(60_000)},
		{name: "retry", script: "job_retry", keys: []string{"job", "open"}, args: of("1")},
		{name: "skip", script: "job_skip", keys: []string{"job", "runs"}, args: func(b *jobBench, _ jobState) []any {
			return []any{b.tick - 400, b.tick, 2, "missed", b.tick - 500, 10, "2"}
		}},
		{name: "open", script: "job_open", keys: openKeys, args: opening("", "1", "0")},
		{name: "open and start", script: "job_open", keys: openKeys, args: opening("r1", "1", "0")},
		{name: "open and know better", script: "job_open", keys: openKeys, args: opening("r1", "0", "9")},
		{name: "leave", script: "job_leave", keys: []string{"job", "live"}, args: fixed("r1")},
		{name: "status", script: "job_status", keys: []string{"job", "open", "live"}, args: fixed()},
		{name: "pause", script: "job_pause", keys: []string{"job", "open", "runs"}, args: fixed("1", 3_600_000)},
		{name: "resume", script: "job_pause", keys: []string{"job", "open", "runs"}, args: fixed("0", 3_600_000)},
		{name: "trigger", script: "job_trigger", keys: []string{"job", "open", "tomb:1"}, args: fixed(100, 300_000)},
	}
}

// Every script of the ledger, in every state of a job, run twice: the state stays,
// and the second answer is the first or the one declared. And what must hold of
// each single run does.
func TestJobScriptsTwiceInEveryState(t *testing.T) {
	onBoth(t, func(e *env) {
		b := &jobBench{env: e}
		sha := map[string]string{}
		granted := 0
		for _, r := range jobRequests() {
			if sha[r.script] == "" {
				source, err := lockcore.ScriptSource(r.script)
				must(e, err)
				sha[r.script] = e.raw.ScriptLoad(e.Context(), source).Val()
			}
			for _, state := range jobStates() {
				b.establish(state)
				before := b.picture()
				keys, args := b.keys(r.keys...), r.args(b, state)
				first, err1 := e.raw.EvalSha(e.Context(), sha[r.script], keys, args...).Result()
				middle := b.picture()
				second, err2 := e.raw.EvalSha(e.Context(), sha[r.script], keys, args...).Result()
				after := b.picture()
				where := fmt.Sprintf("%s with %v", r.name, state)
				if err1 != nil || err2 != nil {
					e.Errorf("%s: %v, %v", where, err1, err2)
					continue
				}
				if !middle.same(after) {
					e.Errorf("%s: twice changed\n%+v to\n%+v", where, middle, after)
				}
				one, two := jobAnswer(first), jobAnswer(second)
				if one != two && two != declaredSecond(r.script, one) {
					e.Errorf("%s: answers %v, then %v", where, first, second)
				}
				if r.script == "job_claim" && one == "1" {
					granted++
				}
				b.check(where, r, state, before, middle, first)
			}
		}
		if granted < 50 {
			e.Errorf("only %d claims were granted", granted)
		}
	})
}

// jobAnswer is the code of an answer.
func jobAnswer(answer any) string {
	if list, ok := answer.([]any); ok {
		return fmt.Sprint(list[0])
	}
	return fmt.Sprint(answer)
}

// declaredSecond is what a script says the second time where it is not the same.
func declaredSecond(script, first string) string {
	switch {
	case script == "job_abandon" && first == "1", script == "job_leave" && first == "1":
		return "0"
	case script == "job_skip" && first == "1", script == "job_claim" && first == "9":
		return "3"
	}
	return first
}

// claimOf is what a claim is to be answered.
func claimOf(r jobRequest, s jobState) string {
	switch {
	case s.tomb != "":
		return "5"
	case s.ledger == "none":
		return "10"
	case s.ledger == "newer":
		return "11"
	case s.isMine():
		return "1"
	case r.gen != "" && r.gen != s.gen:
		return "13"
	case s.tick == "ended":
		return "3"
	case s.paused:
		return "6"
	case !r.overlap && s.earlier == "live":
		return "2"
	case !r.overlap && s.earlier == "dead":
		return "7"
	case s.tick == "live":
		return "2"
	case s.hasRecord() && s.attempt >= r.most:
		return "9"
	case s.hasRecord():
		return "1"
	case r.stale:
		return "8"
	case r.late:
		return "12"
	}
	return "1"
}

// check holds one run against what the scripts promise.
func (b *jobBench) check(where string, r jobRequest, s jobState, before, after jobPicture, answer any) {
	b.Helper()
	complain := func(format string, v ...any) {
		b.Helper()
		b.Errorf("%s: answer %v: %s; after it\n%+v, before\n%+v", where, answer, fmt.Sprintf(format, v...), after, before)
	}
	tick := strconv.FormatInt(b.tick, 10)
	code := jobAnswer(answer)
	if before.job["later"] != after.job["later"] {
		complain("a field of a newer version was dropped")
	}
	for other, record := range before.open {
		if other != tick && after.open[other] != record {
			complain("another tick was touched")
		}
	}
	if (s.tick == "live") && after.open[tick] != before.open[tick] {
		complain("another's run was touched")
	}
	if old, now := before.job["last"], after.job["last"]; old != "" && now < old {
		complain("the newest accounted tick went back")
	}
	if s.ledger == "newer" && !maps.Equal(before.job, after.job) {
		complain("a ledger that is too new was touched")
	}
	_, paused := after.job["paused"]
	for part, ttl := range after.ttl {
		exists := ttl != -2
		kept := part == "job" || part == "open" || part == "runs"
		if exists && ttl < 0 && (!kept || !paused && s.ledger != "newer") {
			complain("the key %s has no TTL", part)
		}
	}
	_, open := after.open[tick]
	switch r.script {
	case "job_claim":
		if want := claimOf(r, s); code != want {
			complain("want %s", want)
			return
		}
		list := answer.([]any)
		switch {
		case code == "9":
			if open || len(after.runs) != len(before.runs)+1 {
				complain("not recorded")
			}
		case code != "1":
			if !before.same(after) {
				complain("a refusal changed something")
			}
		case s.isMine():
			if list[1] != "5" || list[2] != int64(s.attempt) || !strings.Contains(after.open[tick], "til:true") {
				complain("another token or attempt than before, or not extended")
			}
		default:
			attempt := int64(1)
			if s.hasRecord() {
				attempt = int64(s.attempt) + 1
			}
			token, _ := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
			if list[2] != attempt || token < b.now*1000 || after.fence != fmt.Sprint(list[1]) {
				complain("want attempt %d and a token of the present", attempt)
			}
			if !open || after.job["last"] != tick {
				complain("the claim does not stand in the ledger")
			}
			skipped := len(after.runs) - len(before.runs)
			if want := r.skip && !s.hasRecord(); (skipped == 1) != want {
				complain("%d entries for the skipped ticks", skipped)
			}
		}
	case "job_complete":
		mine := s.isMine()
		if (code == "1") != (mine || s.tomb == "ended") {
			complain("not what was mine")
		}
		if mine && (open || after.tomb != "ended" || len(after.runs) != len(before.runs)+1 || after.job["last"] != tick) {
			complain("not recorded")
		}
		if ok := after.job["ok"]; mine && (ok == tick) != (r.name == "complete") {
			complain("newest success is %s", ok)
		}
		if !mine && !before.same(after) {
			complain("a refusal changed something")
		}
	case "job_abandon":
		if (code == "1") != s.isMine() || after.tomb == "" {
			complain("not given up")
		}
		if s.tomb == "ended" && !s.isMine() && after.tomb != "ended" {
			complain("forgotten that the run has ended")
		}
	case "job_renew", "job_retry":
		if (code == "1") != s.isMine() || len(after.open) != len(before.open) {
			complain("not what was mine")
		}
	case "job_skip":
		want := s.ledger == "used" && s.tick == "due" && s.gen == "2" && !s.paused || s.ledger == "fresh"
		if (code == "1") != want || want && after.job["last"] != tick {
			complain("want skipped: %v", want)
		}
	}
}
