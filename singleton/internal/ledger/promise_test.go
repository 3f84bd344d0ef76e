package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A jobVerdict is one run of a script, to be compared with its guarantees.
type jobVerdict struct {
	*jobBench
	where         string
	r             jobRequest
	s             jobState
	before, after jobPicture
	answer        any
	code, tick    string
}

func (v jobVerdict) complain(format string, args ...any) {
	v.Helper()
	v.Errorf("%s: answer %v: %s; after it\n%+v, before\n%+v", v.where, v.answer, fmt.Sprintf(format, args...), v.after, v.before)
}

// check compares one run with the guarantees of the scripts.
func (b *jobBench) check(where string, r jobRequest, s jobState, before, after jobPicture, answer any) {
	b.Helper()
	v := jobVerdict{b, where, r, s, before, after, answer, jobAnswer(answer), strconv.FormatInt(b.tick, 10)}
	if r.script == "job_forget" {
		v.forget()
		return
	}
	v.whole()
	switch r.script {
	case "job_claim":
		v.claim()
	case "job_complete":
		v.complete()
	case "job_abandon", "job_renew":
		v.hold()
	case "job_skip":
		v.skip()
	case "job_open":
		v.open()
	case "job_refresh":
		if same := s.ledger == "used" && s.gen == "2"; (v.code == "1") != same || !slices.Equal(after.live, before.live) {
			v.complain("want the same state, if the replica lives")
		}
	case "job_leave":
		left := s.ledger == "used" && s.gen == "2"
		if (v.code == "1") != left || len(after.live) > 1 || slices.Contains(after.live, "r9") {
			v.complain("not what is left of the replicas")
		}
	case "job_status":
		if v.controls() {
			v.state(false)
		}
		dead := func(name string) bool { return name == "dead" && s.ledger == "used" }
		if !slices.Equal(after.live, slices.DeleteFunc(before.live, dead)) {
			v.complain("want the replicas as they were, without the dead")
		}
	case "job_pause":
		v.pause()
	case "job_trigger":
		v.trigger()
	case "job_rerun":
		v.rerun()
	case "job_cancel":
		v.cancel()
	}
}

// cancelAll is the name of a request.
const cancelAll = "cancel all that have begun"

// whole contains the guarantees of every script.
func (v jobVerdict) whole() {
	v.Helper()
	if v.before.job["later"] != v.after.job["later"] {
		v.complain("a field of a newer version was dropped")
	}
	for other, record := range v.before.open {
		if other != v.tick && v.after.open[other] != record && !v.r.open.over && v.r.name != cancelAll {
			v.complain("another tick was touched")
		}
	}
	if v.s.tick == "live" && v.after.open[v.tick] != v.before.open[v.tick] {
		v.complain("another's run was touched")
	}
	if old, now := v.before.job["last"], v.after.job["last"]; old != "" && now < old && (v.s.ledger != "fresh" || v.r.open.ahead >= 0) {
		v.complain("the newest accounted tick went back")
	}
	if v.s.ledger == "newer" && !maps.Equal(v.before.job, v.after.job) {
		v.complain("a ledger that is too new was touched")
	}
	_, paused := v.after.job["paused"]
	for part, ttl := range v.after.ttl {
		exists := ttl != -2
		kept := part == "job" || part == "runs"
		if exists && ttl < 0 && (!kept || !paused && v.s.ledger != "newer") {
			v.complain("the key %s has no TTL", part)
		}
		if exists && ttl >= 0 && kept && paused {
			v.complain("the key %s of a paused job has a TTL", part)
		}
	}
}

// retained: the retention of the ledger has started again.
func (v jobVerdict) retained() {
	v.Helper()
	if _, paused := v.after.job["paused"]; paused {
		return
	}
	for _, part := range []string{"job", "runs"} {
		if ttl := v.after.ttl[part]; ttl != -2 && (ttl < jobRetain-time.Minute || ttl > jobRetain) {
			v.complain("the key %s lives for %v", part, ttl)
		}
	}
}

// unchanged: a refusal does nothing.
func (v jobVerdict) unchanged() {
	v.Helper()
	if !v.before.same(v.after) {
		v.complain("a refusal changed something")
	}
}

// entry: the newest entry of the history is new, and has these fields.
func (v jobVerdict) entry(fields ...string) {
	v.Helper()
	if len(v.after.runs) != len(v.before.runs)+1 {
		v.complain("not recorded")
		return
	}
	for _, field := range fields {
		if !strings.Contains(v.after.runs[0], field) {
			v.complain("in the history is no %q", field)
		}
	}
}

// forget: only the counter of tokens and tombstones are left, unless a replica runs the job or holds a run.
func (v jobVerdict) forget() {
	v.Helper()
	running := ""
	if v.s.tick == "mine" || v.s.tick == "live" || v.s.earlier == "live" {
		running = "h"
	}
	if v.s.gen == "2" && v.s.ledger == "used" {
		running = strings.TrimSpace(running + " nine")
	}
	if running == "" && !v.controls() {
		return
	}
	if running != "" {
		v.after.live = slices.DeleteFunc(v.after.live, func(name string) bool { return name == "dead" })
		if v.before.live = slices.DeleteFunc(v.before.live, func(name string) bool { return name == "dead" }); v.code != "20" || fmt.Sprint(v.answer) != fmt.Sprint("[20 ", running, "]") {
			v.complain("want %s", running)
		}
		v.unchanged()
		return
	}
	for part, ttl := range v.after.ttl {
		if left := part == "fence" || part == "tomb:1" && v.s.tomb != ""; left != (ttl != -2) {
			v.complain("the key %s is left, or missing", part)
		}
	}
	if len(v.after.acts)+len(v.after.payloads) > 0 || v.after.fence != v.before.fence {
		v.complain("want the counter alone")
	}
}

func (v jobVerdict) complete() {
	v.Helper()
	mine := v.s.isMine()
	if (v.code == "1") != mine {
		v.complain("not what was mine")
	}
	if !mine {
		v.unchanged()
		return
	}
	outcome := "outcome:succeeded"
	if v.r.name == "fail" {
		outcome = "outcome:failed"
	}
	v.entry("tick:"+v.tick, outcome, "token:5", "attempt:"+strconv.Itoa(v.s.attempt))
	if _, open := v.after.open[v.tick]; open || v.after.tomb != v.s.tomb {
		v.complain("not ended")
	}
	if ok := v.after.job["ok"]; (ok == v.tick) != (v.r.name == "complete") {
		v.complain("newest success is %s", ok)
	}
}

// hold contains the guarantees of scripts that change only the state of this run.
func (v jobVerdict) hold() {
	v.Helper()
	mine := v.s.isMine()
	if (v.code == "1") != mine || len(v.after.open) != len(v.before.open) {
		v.complain("not what was mine")
	}
	record := v.after.open[v.tick]
	if !mine && record != v.before.open[v.tick] {
		v.complain("not mine, and changed")
	}
	attempt, want, doubt := v.s.attempt, "", "]"
	if strings.HasSuffix(v.r.name, "in doubt") {
		doubt = " unsure:1]"
	}
	switch v.r.name {
	case "abandon, not begun":
		attempt--
		fallthrough
	case "abandon", "abandon, in doubt":
		wait := "ttl:0"
		if v.r.name == "abandon" {
			wait = "til:true token:5 ttl:5000"
		}
		want = fmt.Sprintf("attempt:%d holder:h later:kept run: start:1 ", attempt)
		if mine && !strings.HasSuffix(record, wait+doubt) {
			v.complain("want %s", wait+doubt)
		}
		tomb := v.s.tomb
		if mine || tomb == "" {
			tomb = "abandoned"
		}
		if v.after.tomb != tomb {
			v.complain("the tombstone is not %q", tomb)
		}
	case "renew":
		want = fmt.Sprintf("attempt:%d holder:h later:kept run:%s start:1 til:true token:5", attempt, jobMe)
	}
	if mine && !strings.Contains(record, want) {
		v.complain("want %s", want)
	}
}

// controls: there is a ledger that can be read.
func (v jobVerdict) controls() bool {
	v.Helper()
	want := map[string]string{"none": "10", "newer": "11"}[v.s.ledger]
	if want == "" {
		want = "1"
	}
	if v.code != want {
		v.complain("want %s", want)
	}
	if want != "1" {
		v.unchanged()
	}
	return v.code == "1" && want == "1"
}

func (v jobVerdict) pause() {
	v.Helper()
	if !v.controls() {
		return
	}
	since := v.before.job["paused"]
	switch {
	case v.r.name == "resume" && v.s.paused:
		since = ""
	case v.r.name == "pause" && !v.s.paused:
		since = "at some time"
	}
	if v.after.job["paused"] != since {
		v.complain("want paused %q", since)
	}
	if since == v.before.job["paused"] {
		v.acted("", "")
	} else {
		v.acted(v.r.name, "")
	}
	v.retained()
}

// acted: the acts of operators are what they were, or begin with this one.
func (v jobVerdict) acted(what, tick string) {
	v.Helper()
	want := v.before.acts
	if what != "" {
		act := map[string]string{"what": what, "who": "ann", "why": "why"}
		if tick != "" {
			act["tick"] = tick
		}
		want = append([]string{fmt.Sprint(act)}, want...)
	}
	if !slices.Equal(v.after.acts, want) {
		v.complain("want the acts %q", want)
	}
}

// givenUp returns how a run ends that no attempt follows.
func (v jobVerdict) givenUp() (outcome, reason string) {
	if v.s.tick == "abandoned" {
		return "outcome:failed", "boom"
	}
	return "outcome:unknown", "its holder died"
}

func (v jobVerdict) cancel() {
	v.Helper()
	all := v.r.name == cancelAll
	held := v.s.tick == "mine" || v.s.tick == "live"
	want := map[string]string{"none": "10", "newer": "11"}[v.s.ledger]
	switch {
	case want != "":
	case all && v.s.earlier != "" || v.s.hasRecord():
		want = "1"
	default:
		want = "17"
	}
	if v.code != want {
		v.complain("want %s", want)
	}
	switch _, open := v.after.open[v.tick]; {
	case v.code != "1":
		v.unchanged()
	case all && v.s.earlier != "":
	case held:
		same := v.after
		same.acts = v.before.acts
		if !v.before.same(same) {
			v.complain("more than the act was changed")
		}
		v.acted("cancel", v.tick)
	default:
		v.acted("cancel", v.tick)
		outcome, reason := v.givenUp()
		v.entry("tick:"+v.tick, outcome, "error:canceled; "+reason, "attempt:"+strconv.Itoa(v.s.attempt))
		if open {
			v.complain("not ended")
		}
	}
}

func (v jobVerdict) rerun() {
	v.Helper()
	want := map[string]string{"none": "10", "newer": "11", "fresh": "16"}[v.s.ledger]
	switch {
	case v.s.tomb != "":
		want = "1"
	case v.s.ledger != "used":
	case v.s.hasRecord():
		want = "14"
	case v.s.tick == "ended":
		want = "1"
	default:
		want = "16"
	}
	if v.code != want {
		v.complain("want %s", want)
	}
	if want != "1" || v.s.tomb != "" {
		v.unchanged()
		return
	}
	if record := v.after.open[v.tick]; !strings.Contains(record, "attempt:0") || !strings.Contains(record, "til:false") || v.after.tomb != v.tick {
		v.complain("want it open")
	}
	v.acted("rerun", v.tick)
}

func (v jobVerdict) trigger() {
	v.Helper()
	if none := v.r.name == "trigger where none may wait"; none && v.s.ledger == "used" {
		if v.code != "2" {
			v.complain("want 2")
		}
		v.unchanged()
		return
	} else if none || !v.controls() {
		return
	}
	tick := fmt.Sprint(v.answer.([]any)[1])
	if n, _ := strconv.ParseInt(tick, 10, 64); n > -v.now || !strings.HasPrefix(v.after.tomb, tick+" ") || v.after.job["trig"] != tick {
		v.complain("want a trigger of now, and that remembered")
	}
	waits := v.r.name == "trigger at an instant"
	if record := v.after.open[tick]; !strings.Contains(record, "attempt:0") || !strings.Contains(record, fmt.Sprint("til:", waits)) {
		v.complain("want it open")
	}
	if payload := v.after.payloads[tick]; (payload != "") != waits {
		v.complain("its payload is %q", payload)
	}
	if v.r.name == "trigger" {
		v.acted("trigger", tick)
	} else {
		v.acted("", "")
	}
	if !waits {
		v.retained()
	}
}
