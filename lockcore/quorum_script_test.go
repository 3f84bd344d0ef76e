package lockcore_test

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	quorumMarkerKey = "noonlock:quorum"
	quorumLockKey   = "noonlock:{orders}:lock"
	quorumTombKey   = "noonlock:{orders}:tomb:ALIVE.1"
)

// timedQuorum is one server of a quorum, with exact milliseconds.
type timedQuorum struct {
	*testenv.Timed
	run string
}

func quorumToTheMillisecond(t *testing.T, test func(e *timedQuorum)) {
	t.Helper()
	testenv.Scripts{Files: lockcore.ScriptFiles()}.ToTheMillisecond(t, func(e *testenv.Timed) {
		info := e.Raw.Info(e.Context(), "server").Val()
		_, run, _ := strings.Cut(strings.TrimSpace(info), "run_id:")
		test(&timedQuorum{e, run})
	})
}

// list25 is the name of the list that the server has.
const list25 = "2/5/3/aa"

// member makes the server one of that list that may grant.
func (e *timedQuorum) member(fields ...any) {
	e.Helper()
	must(e, e.Raw.FlushDB(e.Context()).Err())
	must(e, e.Raw.HSet(e.Context(), quorumMarkerKey, "run", e.run, "id", "a", "list", list25, "servers", "a b c d e", "after", e.MS(0), "longest", 60000, "top", 7).Err())
	if fields != nil {
		must(e, e.Raw.HSet(e.Context(), quorumMarkerKey, fields...).Err())
	}
}

// marker returns the marker as text, with times relative to now and the run as R.
func (e *timedQuorum) marker() string {
	e.Helper()
	all := e.Raw.HGetAll(e.Context(), quorumMarkerKey).Val()
	var parts []string
	for _, f := range []string{"run", "id", "list", "servers", "former", "after", "longest", "top", "return", "returned"} {
		if v, ok := all[f]; ok {
			parts = append(parts, f+"="+strings.ReplaceAll(v, e.run, "R"))
		}
	}
	return strings.Join(parts, " ")
}

// lock returns the holder and the TTL of the lock.
func (e *timedQuorum) lock() string {
	e.Helper()
	if !e.Exists(quorumLockKey) {
		return "free"
	}
	return fmt.Sprint(e.Raw.Get(e.Context(), quorumLockKey).Val(), " ", e.Raw.PTTL(e.Context(), quorumLockKey).Val())
}

// Each request runs twice, which changes nothing but the lock and the greatest token.
func TestQuorumGrantsToTheMillisecond(t *testing.T) {
	quorumToTheMillisecond(t, func(e *timedQuorum) {
		clock, ahead := strconv.FormatInt(e.Now.UnixMicro(), 10), "4000000000000000"
		mine := func() { e.Raw.Set(e.Context(), quorumLockKey, "me", time.Second) }
		others := func() { e.Raw.Set(e.Context(), quorumLockKey, "other", 2*time.Second) }
		another := func() { e.Raw.HSet(e.Context(), quorumLockKey, "a", "b") }
		abandoned := func() { e.Raw.Set(e.Context(), quorumTombKey, "1", 0) }
		run := func(token string, ttl int, list string) string {
			script, args := "quorum_acquire", []any{"me", cmp.Or(ttl, 50000), cmp.Or(list, list25)}
			if token != "" {
				script, args = "quorum_renew", append(args, token)
			}
			return strings.ReplaceAll(e.Run(script, []string{quorumLockKey, quorumTombKey, quorumMarkerKey}, args...), e.run, "R")
		}
		for _, c := range []struct {
			name    string
			marker  []any
			prepare func()
			ttl     int
			list    string
			token   string // of a renewal
			want    string
			lock    string
			top     string // the greatest token after it; empty: as before
		}{
			{name: "free", want: "[1 " + clock + " R " + clock + "]", lock: "me 50s"},
			{name: "the last token is ahead of the clock", marker: []any{"top", ahead}, want: "[1 4000000000000001 R " + clock + "]", lock: "me 50s"},
			{name: "mine", prepare: mine, want: "[1 " + clock + " R " + clock + "]", lock: "me 50s"},
			{name: "another's", prepare: others, want: "[4 2000 other]", lock: "other 2s"},
			{name: "of another kind", prepare: another, want: "[7]", lock: " -1ns"},
			{name: "abandoned", prepare: abandoned, want: "[6]", lock: "free"},
			{name: "another run", marker: []any{"run", "f00"}, want: "[8]", lock: "free"},
			{name: "no marker", prepare: func() { e.Raw.Del(e.Context(), quorumMarkerKey) }, want: "[8]", lock: "free"},
			{name: "an earlier list", list: "2/5/2/aa", want: "[9 2/5/3/aa]", lock: "free"},
			{name: "a later list", list: "2/5/4/aa", want: "[9 2/5/3/aa]", lock: "free"},
			{name: "a list with other servers", list: "2/5/3/bb", want: "[9 2/5/3/aa]", lock: "free"},
			{name: "no list", list: "-", want: "[9 2/5/3/aa]", lock: "free"},
			{name: "waits", marker: []any{"after", e.MS(time.Millisecond)}, want: "[10 1]", lock: "free"},
			{name: "waits longer", marker: []any{"after", e.MS(3 * time.Second)}, want: "[10 3000]", lock: "free"},
			{name: "the longest TTL", ttl: 60000, want: "[1 " + clock + " R " + clock + "]", lock: "me 1m0s"},
			{name: "a longer TTL", ttl: 60001, want: "[11 60000]", lock: "free"},

			{name: "renewed, mine", prepare: mine, token: "8", want: "[1]", lock: "me 50s", top: "8"},
			{name: "renewed, mine, and the token is known", prepare: mine, token: "7", want: "[1]", lock: "me 50s"},
			{name: "renewed, mine, and a greater token is known", prepare: mine, token: "6", want: "[1]", lock: "me 50s"},
			{name: "renewed, mine, after a restart", marker: []any{"run", "f00"}, prepare: mine, token: "8", want: "[1]", lock: "me 50s", top: "8"},
			{name: "renewed, mine, while the server waits", marker: []any{"after", e.MS(time.Hour)}, prepare: mine, token: "8", want: "[1]", lock: "me 50s", top: "8"},
			{name: "renewed, mine, of an earlier list", prepare: mine, list: "2/5/2/aa", token: "8", want: "[9 2/5/3/aa]", lock: "me 1s"},
			{name: "renewed, free", token: "8", want: "[1]", lock: "me 50s", top: "8"},
			{name: "renewed, free, after a restart", marker: []any{"run", "f00"}, token: "8", want: "[8]", lock: "free"},
			{name: "renewed, free, while the server waits", marker: []any{"after", e.MS(time.Second)}, token: "8", want: "[10 1000]", lock: "free"},
			{name: "renewed, free, of an earlier list", list: "2/5/2/aa", token: "8", want: "[9 2/5/3/aa]", lock: "free"},
			{name: "renewed, free, with a TTL that is too long", marker: []any{"longest", 49999}, token: "8", want: "[11 49999]", lock: "free"},
			{name: "renewed, free, and abandoned", prepare: abandoned, token: "8", want: "[6]", lock: "free"},
			{name: "renewed, another's", prepare: others, token: "8", want: "[4]", lock: "other 2s"},
			{name: "renewed, of another kind", prepare: another, token: "8", want: "[4]", lock: " -1ns"},
		} {
			e.member(c.marker...)
			if c.prepare != nil {
				c.prepare()
			}
			marker := e.marker()
			if c.top != "" {
				marker = strings.Replace(marker, "top=7", "top="+c.top, 1)
			}
			for range 2 {
				e.Wants(c.name, run(c.token, c.ttl, c.list), c.want)
				e.Wants(c.name+": the lock", e.lock(), c.lock)
				e.Wants(c.name+": the marker", e.marker(), marker)
			}
		}
		must(e, e.Raw.FlushDB(e.Context()).Err())
		mine()
		e.Wants("renewed, mine, without a marker", run("8", 0, ""), "[9 <nil>]")
		e.Pass(433 * time.Microsecond)
		e.member("after", e.MS(time.Millisecond)) // this very microsecond
		e.Wants("has waited", run("", 0, ""), fmt.Sprintf("[1 %[1]d R %[1]d]", time.Now().UnixMicro()))
	})
}

// A user without the right to publish releases all the same, and ends its record. One who may not write the record
// releases, too.
func TestQuorumLeaveUnderACL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	const record = "noonlock:{orders}:leader"
	keys := []string{quorumLockKey, quorumTombKey, record}
	leave := testenv.Scripts{Files: lockcore.ScriptFiles()}.Source(t, "quorum_leave")
	for rule, ends := range map[string]bool{"-publish": true, "-hset": false} {
		must(t, e.Raw.FlushDB(e.Context()).Err())
		must(t, e.Raw.Set(e.Context(), quorumLockKey, "me", time.Minute).Err())
		must(t, e.Raw.HSet(e.Context(), record, "by", fmt.Sprintf("%x", sha1.Sum([]byte("me"))), "v", 1).Err()) //nolint:gosec // as in the script
		got, err := e.Narrowed("user"+rule, keys, rule).Eval(e.Context(), leave, keys, "me", "1000", "woken", "news").Result()
		if err != nil || got != int64(1) {
			t.Errorf("with %s: %v, %v", rule, got, err)
		}
		if !e.Exists(quorumTombKey) || e.Exists(quorumLockKey) {
			t.Errorf("with %s, the lock is not released, or there is no tombstone", rule)
		}
		equal(t, "the end is in the record, with "+rule, e.Raw.HExists(e.Context(), record, "released").Val(), ends)
	}
}

func TestQuorumStateToTheMillisecond(t *testing.T) {
	quorumToTheMillisecond(t, func(e *timedQuorum) {
		state := func(id string) string {
			return strings.ReplaceAll(e.Run("quorum_state", []string{quorumMarkerKey}, id), e.run, "R")
		}
		e.Wants("empty, to look", state(""), "[R lost  0      ]")
		e.Wants("empty, to look: the marker", e.marker(), "")
		e.Wants("empty", state("x"), "[R lost  0   x   ]")
		e.Wants("empty: the marker", e.marker(), "return=x returned=R")
		e.Wants("again", state("y"), "[R lost  0   x   ]")
		e.Wants("again, to look", state(""), "[R lost  0   x   ]")
		e.member()
		e.Wants("a member", state("x"), "[R member 2/5/3/aa 0 60000 7  a a b c d e ]")
		e.member("after", e.MS(1500*time.Millisecond), "former", "v w")
		before := e.marker()
		e.Wants("a member that waits", state("x"), "[R member 2/5/3/aa 1500 60000 7  a a b c d e v w]")
		e.Wants("a member: the marker", e.marker(), before)
		e.member("run", "f00", "return", "old", "returned", "f00")
		before = e.marker()
		e.Wants("an old disk, to look", state(""), "[R lost 2/5/3/aa 0 60000 7  a a b c d e ]")
		e.Wants("an old disk, to look: the marker", e.marker(), before)
		e.Wants("an old disk", state("x"), "[R lost 2/5/3/aa 0 60000 7 x a a b c d e ]")
		e.Wants("an old disk, again", state("y"), "[R lost 2/5/3/aa 0 60000 7 x a a b c d e ]")
	})
}

func TestQuorumJoinToTheMillisecond(t *testing.T) {
	quorumToTheMillisecond(t, func(e *timedQuorum) {
		after := e.MS(80 * time.Second)
		if e.Now.UnixMicro()%1000 != 0 {
			after = e.MS(80*time.Second + time.Millisecond)
		}
		lost := []any{"run", "f00", "return", "n", "returned", e.run}
		join := func(n, had, list string, longest, wait int) string {
			return e.Run("quorum_join", []string{quorumMarkerKey}, n, had, list, "v w x y z", "z", longest, "9", wait)
		}
		waits := " servers=v w x y z former=a b c d e after=" + after + " longest=80000 top="
		for _, c := range []struct {
			name    string
			marker  []any // nil: none
			number  string
			had     string // empty: the list of the server
			list    string
			longest int
			wait    int
			want    string
			after   string // the marker; empty: as it was
		}{
			{name: "returns", marker: lost, number: "n", list: list25, longest: 80000, wait: 1, want: "1", after: "run=R id=z list=2/5/3/aa" + strings.Replace(waits, " former=a b c d e", "", 1) + "9"},
			{name: "returns, and must not go on", marker: lost, number: "n", list: list25, longest: 80000, want: "1", after: "run=R id=z list=2/5/3/aa" + strings.Replace(waits, " former=a b c d e", "", 1) + "9"},
			{name: "returns, and knows more", marker: append(slices.Clip(lost), "longest", 80000, "top", 12), number: "n", list: list25, longest: 70000, want: "1", after: "run=R id=z list=2/5/3/aa" + strings.Replace(waits, " former=a b c d e", "", 1) + "12"},
			{name: "returns to another list", marker: lost, number: "n", list: "3/7/1/00", longest: 80000, want: "1", after: "run=R id=z list=3/7/1/00" + waits + "9"},
			{name: "a late request", marker: lost, number: "earlier", list: list25, longest: 80000, want: "0"},
			{name: "of another run", marker: []any{"run", "f00", "return", "n", "returned", "f00"}, number: "n", list: list25, longest: 80000, want: "0"},
			{name: "another list than before", marker: lost, number: "n", had: "2/5/2/aa", list: "2/5/4/aa", longest: 80000, want: "0"},
			{name: "none before", marker: lost, number: "n", had: "-", list: "2/5/4/aa", longest: 80000, want: "0"},
			{name: "a member, a longer TTL", marker: []any{}, had: "2/5/2/aa", list: list25, longest: 80000, wait: 1, want: "1", after: "run=R id=a list=2/5/3/aa servers=v w x y z after=" + e.MS(0) + " longest=80000 top=7"},
			{name: "a member goes on", marker: []any{}, list: "2/5/4/00", longest: 50000, want: "1", after: "run=R id=a list=2/5/4/00 servers=v w x y z former=a b c d e after=" + e.MS(0) + " longest=60000 top=7"},
			{name: "a member waits", marker: []any{}, list: "3/5/1/00", longest: 80000, wait: 1, want: "1", after: "run=R id=z list=3/5/1/00" + waits + "9"},
			{name: "a member, another list than before", marker: []any{}, had: "2/5/2/aa", list: "2/5/4/aa", longest: 80000, want: "0"},
		} {
			e.member(append([]any{"top", 7}, c.marker...)...)
			want, had := cmp.Or(c.after, e.marker()), strings.Trim(cmp.Or(c.had, list25), "-")
			for range 2 {
				e.Wants(c.name, join(c.number, had, c.list, c.longest, c.wait), c.want)
				e.Wants(c.name+": the marker", e.marker(), want)
			}
		}
		must(e, e.Raw.FlushDB(e.Context()).Err())
		e.Wants("empty, and not examined", join("", "", "1/3/1/aa", 80000, 1), "0")
		must(e, e.Raw.HSet(e.Context(), quorumMarkerKey, "return", "n", "returned", e.run).Err())
		e.Wants("empty", join("n", "", "1/3/1/aa", 80000, 1), "1")
		e.Wants("empty: the marker", e.marker(), "run=R id=z list=1/3/1/aa servers=v w x y z former= after="+after+" longest=80000 top=9")
	})
}
