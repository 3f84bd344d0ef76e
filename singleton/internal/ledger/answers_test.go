package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answers are the codes of the scripts' answers. The first rule counts of which all words hold, see words.
var answers = map[string]string{
	"job_claim": "none=10 newer=11 mine+tomb=5 mine=1 other-def=13 ended=3 paused+due=6 earlier-live=2 earlier-dead=7 live=2 " +
		"tomb=5 record+spent=9 record=1 stale=8 late=12 =1",
	"job_skip":     "none=10 newer=11 other-def=13 accounted=3 paused=6 stale=8 ahead=4 =1",
	"job_complete": "mine=1 =0",
	"job_abandon":  "mine=1 =0",
	"job_renew":    "mine=1 =0",
	"job_open":     "newer=11 =1",
	"job_refresh":  "r9=1 =0",
	"job_leave":    "r9=1 =0",
	"job_status":   "none=10 newer=11 =1",
	"job_pause":    "none=10 newer=11 =1",
	"job_trigger":  "none=10 newer=11 full=2 =1",
	"job_rerun":    "tomb=1 none=10 newer=11 record=14 ended=1 =16",
	"job_cancel":   "none=10 newer=11 all+earlier=1 record=1 =17",
	"job_forget":   "r9=20 mine-held=20 live=20 earlier-live=20 none=10 newer=11 =1",
}

// words returns what holds for a request in a state.
func (r jobRequest) words(s jobState) []string {
	all := []string{"", r.is, s.ledger, s.tick}
	for word, holds := range map[string]bool{
		"mine":                 s.isMine(),
		"mine-held":            s.tick == "mine",
		"record":               s.hasRecord(),
		"spent":                s.attempt >= r.most,
		"tomb":                 s.tomb != "",
		"paused":               s.paused,
		"earlier":              s.earlier != "",
		"earlier-" + s.earlier: r.is != "overlapping",
		"accounted":            s.tick != "due" && r.is != "ahead",
		"other-def":            r.def != "" && r.def != s.def(),
		"r9":                   s.ledger == "used" && s.gen == "2", // a replica
	} {
		if holds {
			all = append(all, word)
		}
	}
	return all
}

// code returns the code that the rules want.
func (r jobRequest) code(s jobState) string {
	words := r.words(s)
	for rule := range strings.FieldsSeq(answers[r.script]) {
		conditions, code, _ := strings.Cut(rule, "=")
		if !slices.ContainsFunc(strings.Split(conditions, "+"), func(word string) bool { return !slices.Contains(words, word) }) {
			return code
		}
	}
	return ""
}

// told returns the answer to a claim that is granted, or refused with what a replica learns of the job. Only if this
// explains all that is open is the newest tick among it.
func (r jobRequest) told(s jobState, b *jobBench, before jobPicture, answer []any) string {
	last := func(open int) string {
		if len(before.open) != open || r.is == "foreign" {
			return ""
		}
		return before.job["last"]
	}
	ok := before.job["ok"]
	switch fmt.Sprint(answer[0]) {
	case "1":
		token, attempt, unsure, dead := answer[1], answer[2], "", ""
		if s.isMine() {
			token, attempt = "5", s.attempt
		}
		if s.tick == "dead" {
			unsure, dead = "1", "h"
		}
		return fmt.Sprint([]any{1, token, attempt, ok, unsure, "", "", answer[7], dead})
	case "2":
		tick, attempt := b.tick, s.attempt
		if s.earlier == "live" && r.is != "overlapping" {
			tick, attempt = b.tick-800, 1
		}
		return fmt.Sprint([]any{2, answer[1], tick, "h", attempt, last(1)})
	case "3":
		return fmt.Sprint([]any{3, last(0), ok})
	}
	return ""
}

// check compares one run with the guarantees of the scripts.
func (b *jobBench) check(where string, r jobRequest, s jobState, before, after jobPicture, answer any) {
	b.Helper()
	complain := func(format string, args ...any) {
		b.Helper()
		b.Errorf("%s: answer %v: %s; after it\n%+v, before\n%+v", where, answer, fmt.Sprintf(format, args...), after, before)
	}
	code, want, tick := jobAnswer(answer), r.code(s), strconv.FormatInt(b.tick, 10)
	if code != want {
		complain("want %s", want)
	}
	if r.script == "job_claim" {
		if wants := r.told(s, b, before, answer.([]any)); wants != "" && fmt.Sprint(answer) != wants {
			complain("want %s", wants)
		}
		if code == "1" && !strings.Contains(after.open[tick], "til:true") {
			complain("not held")
		}
	}
	if r.script == "job_forget" { // it may drop the dead
		dead := func(name string) bool { return name == "dead" }
		before.live, after.live = slices.DeleteFunc(before.live, dead), slices.DeleteFunc(after.live, dead)
	}
	if r.script == "job_abandon" { // a claim that arrives later finds a tombstone
		if code == "1" || s.tomb == "" {
			before.tomb = "abandoned"
		}
		if after.tomb != before.tomb {
			complain("want the tombstone %s", before.tomb)
		}
	}
	if code == "20" {
		var running []string
		if s.tick == "mine" || s.tick == "live" || s.earlier == "live" {
			running = append(running, "h")
		}
		if s.gen == "2" {
			running = append(running, "nine")
		}
		if fmt.Sprint(answer) != fmt.Sprintf("[20 %s]", strings.Join(running, " ")) {
			complain("want %v", running)
		}
	}
	if code != "1" && code != "9" && !before.same(after) {
		complain("a refusal changed something")
	}
	if before.job["later"] != after.job["later"] && after.job["v"] != "" {
		complain("a field of a newer version was dropped")
	}
	for other, record := range before.open {
		if other != tick && after.open[other] != record && !r.open.over && r.is != "all" && after.job["v"] != "" {
			complain("another tick was touched")
		}
	}
	if s.tick == "live" && after.open[tick] != before.open[tick] {
		complain("another's run was touched")
	}
	if old, now := before.job["last"], after.job["last"]; now != "" && now < old && (s.ledger != "fresh" || r.open.ahead >= 0) {
		complain("the newest accounted tick went back")
	}
	if s.ledger == "newer" && !maps.Equal(before.job, after.job) {
		complain("a ledger that is too new was touched")
	}
	_, paused := after.job["paused"]
	for part, ttl := range after.ttl {
		exists := ttl != -2
		kept := part == "job" || part == "runs"
		if exists && ttl < 0 && (!kept || !paused && s.ledger != "newer") {
			complain("the key %s has no TTL", part)
		}
		if exists && ttl >= 0 && kept && paused {
			complain("the key %s of a paused job has a TTL", part)
		}
		retains := r.script == "job_open" || r.script == "job_pause"
		if exists && kept && !paused && retains && code == "1" && (ttl < jobRetain-time.Minute || ttl > jobRetain) {
			complain("the key %s lives for %v", part, ttl)
		}
	}
}
