package ledger_test

import (
	"fmt"
	"strconv"
	"strings"
)

// claimOf returns the expected answer of a claim.
func claimOf(r jobRequest, s jobState) string {
	switch {
	case s.ledger == "none":
		return "10"
	case s.ledger == "newer":
		return "11"
	case s.isMine() && s.tomb != "":
		return "5"
	case s.isMine():
		return "1"
	case r.def != "" && r.def != s.def():
		return "13"
	case s.tick == "ended":
		return "3"
	case s.paused && s.tick == "due":
		return "6"
	case !r.overlap && s.earlier == "live":
		return "2"
	case !r.overlap && s.earlier == "dead":
		return "7"
	case s.tick == "live":
		return "2"
	case s.tomb != "":
		return "5"
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

// skipOf returns the expected answer of a skip.
func skipOf(r jobRequest, s jobState) string {
	switch {
	case s.ledger == "none":
		return "10"
	case s.ledger == "newer":
		return "11"
	case r.def != "" && r.def != s.def():
		return "13"
	case s.tick != "due" && !r.ahead:
		return "3"
	case s.paused:
		return "6"
	case r.stale:
		return "8"
	case r.ahead:
		return "4"
	}
	return "1"
}

// claim: of all the claims of a tick one is granted, and refusals name the reason.
func (v jobVerdict) claim() {
	v.Helper()
	if want := claimOf(v.r, v.s); v.code != want {
		v.complain("want %s", want)
		return
	}
	list := v.answer.([]any)
	record, open := v.after.open[v.tick]
	switch v.code {
	case "1":
		v.granted(list, record)
		return
	case "9":
		outcome, reason := v.givenUp()
		v.entry("tick:"+v.tick, outcome, "attempt:"+strconv.Itoa(v.s.attempt), "error:"+reason, "holder:h")
		if open || len(list) != 2 || list[1] != strings.TrimPrefix(outcome, "outcome:") {
			v.complain("not ended, or another outcome in the answer")
		}
		return
	case "2":
		left, tick := list[1].(int64), v.tick
		if v.s.earlier == "live" && !v.r.overlap {
			tick = strconv.FormatInt(v.jobBench.tick-800, 10)
		}
		if left <= 0 || left > 60_000 || list[2] != tick || list[3] != "h" {
			v.complain("want what tick %s is held for", tick)
		}
		v.known(list[5], 1)
	case "3":
		v.known(list[1], 0)
		if list[2] != v.before.job["ok"] {
			v.complain("want the last success")
		}
	case "7":
		if list[1] != strconv.FormatInt(v.jobBench.tick-800, 10) {
			v.complain("want the earlier tick")
		}
	case "8":
		if list[1] != v.before.job["last"] {
			v.complain("want the newest accounted tick")
		}
	}
	v.unchanged()
}

// known: the answer says which tick is the newest one if the caller's ledger has so many open runs.
func (v jobVerdict) known(last any, open int) {
	v.Helper()
	want := v.before.job["last"]
	if len(v.before.open) != open || v.r.foreign {
		want = ""
	}
	if last != want {
		v.complain("want the newest accounted tick %q", want)
	}
}

// granted: the answer contains the details of the claim, and the ledger records it.
func (v jobVerdict) granted(list []any, record string) {
	v.Helper()
	_, succeeded := list[3].(string)
	unsure, dead := "", ""
	if v.s.tick == "dead" {
		unsure, dead = "1", "h"
	}
	if now, _ := list[7].(int64); len(list) != 9 || now == 0 || !succeeded || list[3] != v.before.job["ok"] || list[4] != unsure || list[5] != "" || list[6] != "" || list[8] != dead {
		v.complain("want the last success, unsure %q, and %q as dead", unsure, dead)
	}
	if !strings.Contains(record, "til:true") {
		v.complain("not held")
	}
	if v.s.isMine() {
		if list[1] != "5" || list[2] != strconv.Itoa(v.s.attempt) {
			v.complain("another token or attempt than before")
		}
		return
	}
	attempt := 1
	if v.s.hasRecord() {
		attempt = v.s.attempt + 1
	}
	token, _ := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
	start, _ := strconv.ParseInt(fmt.Sprint(list[7]), 10, 64)
	if list[2] != strconv.Itoa(attempt) || token < v.now*1000 || v.after.fence != fmt.Sprint(list[1]) || start < v.now {
		v.complain("want attempt %d and a token and a start of the present", attempt)
	}
	if !strings.Contains(record, fmt.Sprintf("attempt:%d ", attempt)) || !strings.Contains(record, " holder:me ") || v.after.job["last"] != v.tick {
		v.complain("the claim is not in the ledger")
	}
	if len(v.after.runs) != len(v.before.runs) {
		v.complain("something is in the history")
	}
}

func (v jobVerdict) skip() {
	v.Helper()
	if want := skipOf(v.r, v.s); v.code != want {
		v.complain("want %s", want)
		return
	}
	list := v.answer.([]any)
	switch v.code {
	case "1":
		v.entry("outcome:skipped", "count:2", "last:"+v.tick, "error:missed")
		if v.after.job["last"] != v.tick {
			v.complain("not accounted for")
		}
		return
	case "4":
		if left := list[1].(int64); left <= 0 || left > 60_000_000 {
			v.complain("want how long it is not due")
		}
	case "8":
		if list[1] != v.before.job["last"] {
			v.complain("want the newest accounted tick")
		}
	}
	v.unchanged()
}
