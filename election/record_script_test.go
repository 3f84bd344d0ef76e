package election

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
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
	for _, script := range []string{"leader_renew", "leader_read", "leader_resign"} {
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
			case "leader_read": // the remaining time of the lock is less
				_, one, _ = strings.Cut(one, " ")
				_, two, _ = strings.Cut(two, " ")
			case "leader_renew":
				if _, ok := after.record["renewed"]; ok {
					after.record["renewed"] = middle.record["renewed"]
				}
				if before.record["by"] != middle.record["by"] {
					one = "1" // 2: the record is new
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
	if before.record["by"] != rec["by"] || r.script == "leader_resign" && (before.record["asked"] != rec["asked"] || before.record["request"] != rec["request"]) || before.record["holder"] != rec["holder"] || before.record["released"] != rec["released"] {
		told = []string{"noonlock:leader:0:board " + leaderToken}
	}
	written := after.kept > 24*time.Hour

	switch r.script {
	case "leader_renew":
		untouched := slices.Contains([]string{"newer", "newer's mine", "unreadable", "wrong"}, state.record)
		want := int64(2)
		switch {
		case !mine:
			want = 0
		case untouched:
			want = 3
		case isMine && state.record != "asked" && state.record != "asked again":
			want = 1
		}
		if answer != want || mine && after.left <= time.Minute {
			complain("renewed what is not mine, or not what is; want %d", want)
		}
		lockStays = lockStays || mine
		switch {
		case !mine || untouched:
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
			if rec["asked"]+rec["request"] != "" || rec["v"]+rec["holder"]+rec["by"]+rec["token"]+rec["lease"] != "1me"+hash(me)+leaderToken+"90000" || rec["released"] != "" || rec["acquired"] != begun(rec["renewed"]) || !fresh("renewed") || !written {
				complain("the record was not written")
			}
		}
	case "leader_resign":
		want, asks := int64(-2), false
		switch {
		case state.lock == "":
			want = 0
		case state.record == "newer" || state.record == "newer's mine":
			want = -1
		case isMine && mine:
			want, asks = 1, true
		}
		if answer != want {
			complain("want %d", want)
		}
		if asks && (rec["asked"] != leaderToken || rec["request"] != leaderRequest) || !asks && !recordStays {
			complain("not asked, or the record was touched")
		}
	case "leader_read":
		leads := mine && rec["by"] == hash(me)
		if left, err := strconv.Atoi(answered(0)); err != nil || (left > 0) != leads || left > 60000 {
			complain("left, and it leads: %v", leads)
		}
		granted := map[string]string{me: "me", living: "a/living\none"}[state.lock]
		if leads {
			granted = ""
		}
		if answered(1) != granted {
			complain("it is granted to %q", granted)
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
	if r.script == "leader_renew" && before.record["by"] != rec["by"] {
		terms = fmt.Sprintf("[%s %s %s %s]", rec["token"], rec["acquired"], cmp.Or(before.record["released"], "0"), rec["holder"])
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

// begun returns when a leadership began that has the age of leaderRuns at the given time, in ms.
func begun(now string) string {
	ms, _ := strconv.ParseInt(now, 10, 64)
	return strconv.FormatInt(ms-7000, 10)
}

// The record of a leader, the list of terms, and how long they are kept. A record that was deleted is written again,
// and its term is not listed again.
func TestLeaderRecordToTheMillisecond(t *testing.T) {
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		renew := func(attempt, token, holder string, age int) string {
			testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), attempt, time.Minute).Err())
			return e.Run("leader_renew", []string{key("lock"), key("leader"), key("terms")}, attempt, 60000, token, holder, `{"a":"b"}`, age, channel)
		}
		for range 2 {
			e.Wants("the first renewal", renew(me, "17", "pod-1", 5), "2")
			e.Wants("the record", fmt.Sprint(e.Raw.HGetAll(e.Context(), key("leader")).Val()), fmt.Sprint(map[string]string{
				"v": "1", "by": hash(me), "holder": "pod-1", "token": "17", "acquired": e.MS(-5 * time.Millisecond), "renewed": e.MS(0), "lease": "60000", "metadata": `{"a":"b"}`,
			}))
			e.Wants("its TTL", e.PTTL(key("leader")).String(), (7 * 24 * time.Hour).String())
			e.Wants("the terms", fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, -1).Val()), fmt.Sprintf("[17 %s 0 pod-1]", e.MS(-5*time.Millisecond)))
			testenv.Must(e, e.Raw.Del(e.Context(), key("leader")).Err())
		}
		testenv.Must(e, e.Raw.RPush(e.Context(), key("terms"), slices.Repeat([]any{""}, 120)...).Err())
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 1, "by", hash(me), "released", 3).Err())
		e.Wants("another attempt", renew("another", "19", "pod 2", 0), "2")
		e.Wants("the newest terms", fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, 1).Val()), fmt.Sprintf("[19 %s 3 pod 2 17 %s 0 pod-1]", e.MS(0), e.MS(-5*time.Millisecond)))
		e.Wants("their number and TTL", fmt.Sprint(e.Raw.LLen(e.Context(), key("terms")).Val(), e.PTTL(key("terms"))), fmt.Sprint(100, 7*24*time.Hour))
	})
}
