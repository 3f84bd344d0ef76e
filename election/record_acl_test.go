package election

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

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
		establish(e, leaderState{lock: me, record: test.record})
		runs := leaderRuns()
		r := runs[slices.IndexFunc(runs, func(r leaderRun) bool { return r.script == test.script })]
		source := lua().Source(t, r.script)
		got, err := e.Narrowed(fmt.Sprint("user", i), r.keys, test.rules...).Eval(e.Context(), source, r.keys, r.args...).Result()
		if got != test.want || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v, %v", where, got, err)
		}
		if r.script == "leader_renew" && e.PTTL(key("lock")) <= time.Minute {
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
