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

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const (
	me       = "nl1:ALIVE.1/me"
	living   = "nl1:ALIVE.2/a/living\none"
	stranger = "a foreign client"

	leaderToken   = "1700000000000000"
	leaderRequest = `{"id":"1"}`
	longAgo       = "1763000000000" // ms
	spoilt        = -9
)

func lua() testenv.Scripts { return testenv.Scripts{Files: ScriptFiles} }

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	lua().CheckHeaders(t)
}

// A leaderRun has the keys and arguments of a script for the attempt me. The TTL is longer than the remaining time of
// a lock.
type leaderRun struct {
	keys []string
	args []any
}

func leaderRuns() map[string]leaderRun {
	keys := []string{key("lock"), key("leader")}
	return map[string]leaderRun{
		"leader_renew":  {append(keys, key("terms")), []any{me, 90000, leaderToken, "me", "{}", 7000, channel}},
		"leader_read":   {keys, nil},
		"leader_resign": {keys, []any{leaderToken, leaderRequest, channel}},
	}
}

// hash returns what a record has of an attempt.
func hash(attempt string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(attempt))) } //nolint:gosec // as in the script

// mine returns a record of me with changed fields.
func mine(changes ...string) map[string]string {
	r := map[string]string{
		"v": "1", "by": hash(me), "holder": "me", "token": leaderToken, "acquired": longAgo, "renewed": longAgo, "lease": "60000", "metadata": "{}",
	}
	for i := 0; i < len(changes); i += 2 {
		r[changes[i]] = changes[i+1]
	}
	return r
}

// A leaderRecord is a state of the record, and what the scripts answer if me has the lock: spoilt is an error.
type leaderRecord struct {
	fields        map[string]string // with a field "", the key has another type
	renew, resign int
}

func leaderRecords() map[string]leaderRecord {
	older := func(changes ...string) map[string]string {
		return mine(append([]string{"by", hash("nl1:DEAD.1/older"), "holder", "older", "token", "1600000000000000"}, changes...)...)
	}
	return map[string]leaderRecord{
		"none":         {nil, 2, -2},
		"mine":         {mine(), 1, 1},
		"resigned":     {mine("holder", "", "released", longAgo), 1, 1},
		"asked":        {mine("asked", leaderToken, "request", leaderRequest), 2, 1},
		"asked again":  {mine("asked", leaderToken, "request", `{"id":"2"}`), 2, 1},
		"asked before": {mine("asked", "1600000000000000", "request", leaderRequest), 1, 1},
		"older":        {older(), 2, -2},
		"older's end":  {older("holder", "", "released", longAgo), 2, -2},
		"older asked":  {older("asked", "1600000000000000", "request", leaderRequest), 2, -2},
		"newer":        {map[string]string{"v": "2", "holder": "newer"}, 3, -1},
		"newer's mine": {mine("holder", "newer", "v", "2"), 3, -1},
		"unreadable":   {mine("holder", "newer", "v", "x"), 3, spoilt},
		"without by":   {map[string]string{"v": "1", "holder": "me", "token": leaderToken}, 2, -2},
		"broken":       {map[string]string{"token": "x"}, 2, -2},
		"wrong":        {map[string]string{"": "x"}, 3, spoilt},
	}
}

// establish writes the lock and the record.
func establish(e *testenv.Env, lock string, fields map[string]string) {
	e.Helper()
	_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		ctx := e.Context()
		p.Del(ctx, key("lock"), key("leader"), key("terms"))
		switch lock {
		case "":
		case "wrong":
			p.HSet(ctx, key("lock"), "a", "b")
		default:
			p.Set(ctx, key("lock"), lock, time.Minute)
		}
		switch text, wrong := fields[""]; {
		case wrong:
			p.Set(ctx, key("leader"), text, time.Hour)
		case fields != nil:
			p.HSet(ctx, key("leader"), fields)
			p.PExpire(ctx, key("leader"), time.Hour)
		}
		return nil
	})
	testenv.Must(e, err)
}

// Every script of an election runs twice in every state of its keys. The second answer is equal to the first, except
// that a record is new once, the state stays, and no message is repeated. Each script runs as a user with access to its
// own keys only.
func TestLeaderScriptsTwiceInEveryState(t *testing.T) {
	for script, r := range leaderRuns() {
		t.Run(script, func(t *testing.T) {
			testenv.OnOneServer(t, func(e *testenv.Env) {
				heard := e.Raw.Subscribe(e.Context(), channel)
				defer heard.Close()
				_, err := heard.Receive(e.Context())
				testenv.Must(e, err)
				began, user, source := e.Raw.Time(e.Context()).Val().UnixMilli(), e.Narrowed("narrow", r.keys), lua().Source(e, script)
				for name, c := range leaderRecords() {
					for _, lock := range []string{"", me, living, stranger, "wrong"} {
						establish(e, lock, c.fields)
						for n := range 2 {
							answer, err := user.Eval(e.Context(), source, r.keys, r.args...).Result()
							w := c.wants(script, lock, n)
							where := fmt.Sprintf("%s with the lock of %q and the record %s, run %d", script, lock, name, n+1)
							w.check(e, where, answer, err, began)
							if told := e.Received(heard, channel); len(told) > 1 || (len(told) == 1) != w.told || w.told && told[0] != channel+" "+leaderToken {
								e.Errorf("%s: messages %q", where, told)
							}
						}
					}
				}
			})
		})
	}
}

// leaderWants is what a run of a script must lead to.
type leaderWants struct {
	leaderRecord
	lock     string
	answer   int // of a read: whether me leads
	granted  string
	told     bool
	extended bool // the lock
	written  bool // the record, or its time
	terms    string
}

func (c leaderRecord) wants(script, lock string, n int) leaderWants {
	w := leaderWants{leaderRecord: c, lock: lock, terms: "[]"}
	w.fields = maps.Clone(c.fields)
	leads := lock == me && c.fields["by"] == hash(me)
	switch script {
	case "leader_renew":
		if lock != me {
			return w
		}
		w.answer, w.extended, w.written = c.renew, true, c.renew != 3
		switch {
		case w.written && leads:
			w.fields["renewed"] = "now"
		case w.written:
			w.answer, w.told = 2-n, n == 0
			w.fields = mine("acquired", "7 s ago", "renewed", "now", "lease", "90000")
			w.terms = fmt.Sprintf("[%s 7 s ago %s me]", leaderToken, cmp.Or(c.fields["released"], "0"))
		}
	case "leader_resign":
		switch {
		case lock == "":
		case c.resign != 1 || leads:
			w.answer = c.resign
		default:
			w.answer = -2
		}
		if w.answer == 1 {
			w.fields["asked"], w.fields["request"] = leaderToken, leaderRequest
			w.told = n == 0 && !maps.Equal(w.fields, c.fields)
		}
	case "leader_read":
		w.granted = map[string]string{me: "me", living: "a/living\none"}[lock]
		if leads {
			w.answer, w.granted = 1, ""
		}
		if _, wrong := c.fields[""]; wrong {
			w.answer = spoilt
		}
	}
	return w
}

func (w leaderWants) check(e *testenv.Env, where string, answer any, err error, began int64) {
	e.Helper()
	code, read := answer, map[string]string(nil)
	if list, ok := answer.([]any); ok {
		code = min(max(list[0].(int64), 0), 1)
		testenv.Equal(e, where+": granted", list[1], any(w.granted))
		read = map[string]string{}
		for i := 2; i < len(list); i += 2 {
			read[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
		}
	}
	if (err != nil) != (w.answer == spoilt) || err == nil && code != int64(w.answer) {
		e.Errorf("%s: %v, %v, want %d", where, answer, err, w.answer)
	}
	stored, terms := e.Raw.HGetAll(e.Context(), key("leader")).Val(), fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, -1).Val())
	if read != nil && !maps.Equal(read, stored) {
		e.Errorf("%s: it reads %v of %v", where, read, stored)
	}
	recent := func(field string, since int64) bool {
		ms, err := strconv.ParseInt(stored[field], 10, 64)
		return err == nil && ms >= since && stored[field] != longAgo
	}
	if recent("acquired", began-7000) {
		stored["acquired"], terms = "7 s ago", strings.Replace(terms, stored["acquired"], "7 s ago", 1)
	}
	if recent("renewed", began) {
		stored["renewed"] = "now"
	}
	delete(w.fields, "")
	if !maps.Equal(stored, w.fields) {
		e.Errorf("%s: the record is %v, want %v", where, stored, w.fields)
	}
	if kept := e.PTTL(key("leader")) > 24*time.Hour; kept != w.written {
		e.Errorf("%s: whether it is kept for long is %v", where, kept)
	}
	if extended := e.PTTL(key("lock")) > time.Minute; extended != w.extended || e.Exists(key("lock")) != (w.lock != "") {
		e.Errorf("%s: whether the lock was extended is %v", where, extended)
	}
	testenv.Equal(e, where+": the terms", terms, w.terms)
}

// Whatever an ACL forbids in an election's scripts, a renewal extends the lock, and
// messages may be lost. A record that cannot be written is told to the leader.
func TestLeaderScriptsUnderACL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	lock, leader := key("lock"), key("leader")
	lockOnly := []string{"-pexpire", "(+pexpire ~" + lock + ")"}
	for i, test := range []struct {
		script string
		record string
		rules  []string
		want   any    // nil: an error
		holder string // in the record after it
	}{
		{"leader_renew", "mine", []string{"-hmget"}, int64(3), "me"},
		{"leader_renew", "older", []string{"-hmget"}, int64(3), "older"},
		{"leader_renew", "newer", []string{"-hmget"}, int64(3), "newer"},
		{"leader_renew", "mine", []string{"-hset"}, int64(1), "me"},
		{"leader_renew", "older's end", []string{"-hset"}, int64(3), ""},
		{"leader_renew", "older", []string{"-hdel"}, int64(2), "me"},
		{"leader_renew", "mine", lockOnly, int64(1), "me"},
		{"leader_renew", "older", lockOnly, int64(2), "me"},
		{"leader_renew", "older", []string{"-publish"}, int64(2), "me"},
		{"leader_renew", "older", []string{"-lpush"}, int64(2), "me"},
		{"leader_renew", "older", []string{"-ltrim"}, int64(2), "me"},
		{"leader_renew", "older", []string{"-lrange"}, int64(2), "me"},
		{"leader_resign", "mine", []string{"-publish"}, int64(1), "me"},
		{"leader_resign", "mine", []string{"-hset"}, nil, "me"},
	} {
		if slices.Equal(test.rules, lockOnly) && !e.Knows("pexpiretime") {
			continue // Redis 6.2 has no selectors: a right for all keys, or for none
		}
		where := fmt.Sprintf("%s with record %s and rules %q", test.script, test.record, test.rules)
		establish(e, me, leaderRecords()[test.record].fields)
		r := leaderRuns()[test.script]
		got, err := e.Narrowed(fmt.Sprint("user", i), r.keys, test.rules...).Eval(e.Context(), lua().Source(t, test.script), r.keys, r.args...).Result()
		if got != test.want || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v, %v", where, got, err)
		}
		if test.script == "leader_renew" && e.PTTL(key("lock")) <= time.Minute {
			t.Errorf("%s: not extended", where)
		}
		if holder := e.Raw.HGet(e.Context(), leader, "holder").Val(); holder != test.holder {
			t.Errorf("%s: the record names %q", where, holder)
		}
	}
	if log := e.Raw.ACLLog(e.Context(), 100).Val(); len(log) < 6 {
		t.Errorf("%d refusals: %+v", len(log), log)
	}
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
			testenv.Equal(e, "the first renewal", renew(me, "17", "pod-1", 5), "2")
			testenv.Equal(e, "the record", fmt.Sprint(e.Raw.HGetAll(e.Context(), key("leader")).Val()), fmt.Sprint(map[string]string{
				"v": "1", "by": hash(me), "holder": "pod-1", "token": "17", "acquired": e.MS(-5 * time.Millisecond), "renewed": e.MS(0), "lease": "60000", "metadata": `{"a":"b"}`,
			}))
			testenv.Equal(e, "its TTL", e.PTTL(key("leader")).String(), (7 * 24 * time.Hour).String())
			testenv.Equal(e, "the terms", fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, -1).Val()), fmt.Sprintf("[17 %s 0 pod-1]", e.MS(-5*time.Millisecond)))
			testenv.Must(e, e.Raw.Del(e.Context(), key("leader")).Err())
		}
		testenv.Must(e, e.Raw.RPush(e.Context(), key("terms"), slices.Repeat([]any{""}, 120)...).Err())
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 1, "by", hash(me), "released", 3).Err())
		testenv.Equal(e, "another attempt", renew("another", "19", "pod 2", 0), "2")
		testenv.Equal(e, "the newest terms", fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, 1).Val()), fmt.Sprintf("[19 %s 3 pod 2 17 %s 0 pod-1]", e.MS(0), e.MS(-5*time.Millisecond)))
		testenv.Equal(e, "their number and TTL", fmt.Sprint(e.Raw.LLen(e.Context(), key("terms")).Val(), e.PTTL(key("terms"))), fmt.Sprint(100, 7*24*time.Hour))
	})
}
