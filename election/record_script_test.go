package election

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

func lua() testenv.Scripts { return testenv.Scripts{Files: ScriptFiles} }

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	lua().CheckHeaders(t)
}

// Every script of an election runs twice in every state of its keys. The second answer is
// equal to the first, the state stays, no message is repeated, and other keys are not
// touched. Each script runs as a user with access to its own keys only.
func TestLeaderScriptsTwiceInEveryState(t *testing.T) {
	for _, script := range []string{"leader_claim", "leader_renew", "leader_vacate", "leader_look", "leader_resign"} {
		t.Run(script, func(t *testing.T) {
			testenv.OnOneServer(t, func(e *testenv.Env) { leaderTwice(e, script) })
		})
	}
}

func leaderTwice(e *testenv.Env, script string) {
	e.Helper()
	heard := e.Raw.Subscribe(e.Context(), "noonlock:leader:0:board")
	defer heard.Close()
	_, err := heard.Receive(e.Context())
	testenv.Must(e, err)
	source := lua().Source(e, script)
	began := e.Raw.Time(e.Context()).Val().UnixMilli()
	runs := 0
	for _, r := range leaderRuns() {
		if r.script != script {
			continue
		}
		user := e.Narrowed(fmt.Sprint("user", len(r.keys)), r.keys)
		for _, state := range leaderStates() {
			establish(e, state)
			before := snap(e, heard)
			first, err1 := user.Eval(e.Context(), source, r.keys, r.args...).Result()
			middle := snap(e, heard)
			second, err2 := user.Eval(e.Context(), source, r.keys, r.args...).Result()
			after := snap(e, heard)
			runs++
			where := fmt.Sprintf("%v with %v", r, state)
			if err1 != nil || err2 != nil {
				spoilt := slices.Contains([]string{"wrong", "unreadable"}, state.record) && script != "leader_renew"
				if !spoilt {
					e.Errorf("%s: %v, %v", where, err1, err2)
				}
				if !before.same(after) || middle.told != nil || after.told != nil {
					e.Errorf("%s: half done", where)
				}
				continue
			}
			one, two := fmt.Sprint(first), fmt.Sprint(second)
			switch script {
			case "leader_look": // the remaining time of the lock is less
				_, one, _ = strings.Cut(one, " ")
				_, two, _ = strings.Cut(two, " ")
			case "leader_renew":
				if _, ok := after.record["renewed"]; ok {
					after.record["renewed"] = middle.record["renewed"]
				}
			}
			if one != two {
				e.Errorf("%s: answers %v, then %v", where, first, second)
			}
			if !middle.same(after) || after.told != nil {
				e.Errorf("%s: twice changed %+v to %+v", where, middle, after)
			}
			checkLeaderRun(e, where, r, state, began, before, middle, first)
		}
	}
	if runs < 80 {
		e.Errorf("%d runs", runs)
	}
}

func checkLeaderRun(e *testenv.Env, where string, r leaderRun, state leaderState, began int64, before, after snapshot, answer any) {
	e.Helper()
	complain := func(format string, v ...any) {
		e.Helper()
		e.Errorf("%s: answer %v, after it %+v: %s", where, answer, after, fmt.Sprintf(format, v...))
	}
	list, _ := answer.([]any)
	answered := func(i int) string {
		if i >= len(list) {
			return ""
		}
		return fmt.Sprint(list[i])
	}
	rec, mine := after.record, state.lock == me
	fresh := func(field string) bool {
		ms, err := strconv.ParseInt(rec[field], 10, 64)
		return err == nil && ms >= began && rec[field] != longAgo
	}
	recordStays, lockStays := maps.Equal(before.record, rec) && before.kept >= after.kept, before.left >= after.left
	var told []string
	isMine := slices.Contains([]string{"mine", "resigned", "asked", "asked again", "asked before"}, state.record)
	if before.record["token"] != rec["token"] || r.script == "leader_resign" && (before.record["asked"] != rec["asked"] || before.record["request"] != rec["request"]) || before.record["holder"] != rec["holder"] || before.record["released"] != rec["released"] {
		told = []string{"noonlock:leader:0:board " + leaderToken}
	}
	written := after.kept > 24*time.Hour

	switch r.script {
	case "leader_claim":
		switch {
		case !mine, !state.fence && r.args[2] == "":
			if answered(0) != "0" || !recordStays {
				complain("claimed without the lock, or without a token")
			}
		case state.record == "newer" || state.record == "newer's mine":
			if answered(0) != "-1" || !recordStays {
				complain("a newer version's record was touched")
			}
		case isMine:
			if answered(0) != "7" || answered(1) != longAgo || !recordStays {
				complain("claimed once more")
			}
		default:
			want := map[string]string{"none": "1", "broken": "1", "older": "8", "older asked": "8", "greater": "8", "older's end": "8"}[state.record]
			if answered(0) != want || rec["term"] != want || rec["token"] != leaderToken || rec["lease"] != "90000" {
				complain("want term %s", want)
			}
			if rec["v"] != "1" || rec["holder"] != "me" || rec["released"]+rec["asked"]+rec["request"] != "" || !written {
				complain("not the claim's record")
			}
			if !fresh("acquired") || !fresh("renewed") || answered(1) != rec["acquired"] {
				complain("the term's begin")
			}
		}
	case "leader_renew":
		want := int64(0)
		switch {
		case mine && (state.record == "asked" || state.record == "asked again"):
			want = 2
		case mine:
			want = 1
		}
		if answer != want || mine && after.left <= time.Minute {
			complain("renewed what is not mine, or not what is; want %d", want)
		}
		lockStays = lockStays || mine
		switch {
		case !mine || slices.Contains([]string{"newer", "newer's mine", "unreadable", "wrong"}, state.record):
			if !recordStays {
				complain("the record was touched")
			}
		case isMine: // "resigned" as after a lock set back with the server's data
			same := maps.Clone(before.record)
			same["renewed"] = rec["renewed"]
			if !fresh("renewed") || !written || !maps.Equal(same, rec) {
				complain("the record was not renewed, or more than that")
			}
		default:
			if rec["asked"]+rec["request"] != "" || rec["holder"] != "me" || rec["term"] != "7" || rec["acquired"] != longAgo || rec["released"] != "" || !fresh("renewed") || !written {
				complain("the record was not mended")
			}
		}
	case "leader_vacate":
		vacant := state.lock == "" && isMine
		if (answer == int64(1)) != vacant {
			complain("want %v", vacant)
		}
		if vacant && state.record != "resigned" {
			if rec["holder"] != "" || !fresh("released") || after.kept <= 0 {
				complain("not vacated")
			}
		} else if !recordStays {
			complain("the record was touched")
		}
	case "leader_resign":
		want, asks := int64(-2), false
		switch {
		case state.lock == "":
			want = 0
		case state.record == "newer" || state.record == "newer's mine":
			want = -1
		case isMine:
			want, asks = 1, true
		}
		if answer != want {
			complain("want %d", want)
		}
		if asks && (rec["asked"] != leaderToken || rec["request"] != leaderRequest) || !asks && !recordStays {
			complain("not asked, or the record was touched")
		}
	case "leader_look":
		if (mine || state.lock == living) == strings.HasPrefix(answered(0), "-") {
			complain("left of the lock")
		}
		if answered(1) != cmp.Or(before.fence, "<nil>") {
			complain("want the counter")
		}
		fields := map[string]string{}
		for i := 2; i+1 < len(list); i += 2 {
			fields[answered(i)] = answered(i + 1)
		}
		if !recordStays || !maps.Equal(fields, rec) {
			complain("want the record")
		}
	}
	terms := "[]"
	if r.script == "leader_claim" && before.record["token"] != rec["token"] {
		terms = fmt.Sprintf("[%s %s %s %s %s]", rec["term"], rec["token"], rec["acquired"], cmp.Or(before.record["released"], "0"), rec["holder"])
	}
	if after.terms != terms {
		complain("want the terms %s", terms)
	}
	if !before.sameLock(after) || !lockStays {
		complain("the lock or the queue was %+v", before)
	}
	if !slices.Equal(told, after.told) {
		complain("messages %q, want %q", after.told, told)
	}
}

// The record of a leader, and how long it is kept.
func TestLeaderRecordToTheMillisecond(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), me, time.Minute).Err())
		e.Wants("claim", e.Run("leader_claim", []string{key("lock"), key("leader"), key("fence"), key("terms")}, me, 60000, "17", "pod-1", `{"a":"b"}`, "noonlock:leader:0:board"), "[1 "+e.MS(0)+" 17]")
		e.Wants("the record", fmt.Sprint(e.Raw.HGetAll(e.Context(), key("leader")).Val()), fmt.Sprint(map[string]string{
			"v": "1", "by": fmt.Sprintf("%x", sha1.Sum([]byte(me))), "holder": "pod-1", "token": "17", "term": "1", "acquired": e.MS(0), "renewed": e.MS(0), "lease": "60000", "metadata": `{"a":"b"}`, //nolint:gosec // as in the script
		}))
		e.Wants("its TTL", e.PTTL(key("leader")).String(), (7 * 24 * time.Hour).String())
		// The grant lapsed, and the same attempt got another one: its first term has not begun.
		e.Wants("the same attempt", e.Run("leader_claim", []string{key("lock"), key("leader"), key("fence"), key("terms")}, me, 60000, "18", "pod-1", "{}", "noonlock:leader:0:board"), "[1 "+e.MS(0)+" 18]")
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), "another", time.Minute).Err())
		testenv.Must(e, e.Raw.RPush(e.Context(), key("terms"), slices.Repeat([]any{""}, 120)...).Err())
		e.Wants("another attempt", e.Run("leader_claim", []string{key("lock"), key("leader"), key("fence"), key("terms")}, "another", 60000, "19", "pod-2", "{}", "noonlock:leader:0:board"), "[2 "+e.MS(0)+" 19]")
		e.Wants("the newest terms", fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, 2).Val()), fmt.Sprintf("[2 19 %[1]s 0 pod-2 1 18 %[1]s 0 pod-1 1 17 %[1]s 0 pod-1]", e.MS(0)))
		e.Wants("their number and TTL", fmt.Sprint(e.Raw.LLen(e.Context(), key("terms")).Val(), e.PTTL(key("terms"))), fmt.Sprint(100, 7*24*time.Hour))
	})
}
