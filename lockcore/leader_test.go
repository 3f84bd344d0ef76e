package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const boardKey = "election/board"

func (e *env) election(c *lockcore.Client, cfg lockcore.ElectionConfig) *lockcore.Election {
	e.Helper()
	el, err := c.Election("board", cfg)
	must(e, err)
	return el
}

func (e *env) campaign(el *lockcore.Election) *lockcore.Leadership {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	l, err := el.Campaign(ctx)
	must(e, err)
	return l
}

// leaderRuns are the scripts of an election with the keys and arguments they are
// run with, me being the attempt of the same name.
func leaderRuns(e *env) []struct {
	script string
	keys   []string
	args   []any
} {
	lock, fence, queue := e.key(boardKey, "lock"), e.key(boardKey, "fence"), e.key(boardKey, "queue")
	seen, leader := e.key(boardKey, "seen"), e.key(boardKey, "leader")
	return []struct {
		script string
		keys   []string
		args   []any
	}{
		{"leader_claim", []string{lock, leader}, []any{me, 60000, "1700000000000000", "me", "{}"}},
		{"leader_renew", []string{lock, leader}, []any{me, 60000, "1700000000000000", "me", "{}", 7, 1763000000000}},
		{"leader_vacate", []string{lock, leader}, []any{"1700000000000000"}},
		{"leader_look", []string{lock, fence, leader}, nil},
		{"leader_line", []string{queue, seen}, nil},
		{"leader_transfer", []string{lock, queue, seen}, []any{me, "living"}},
		{"leader_transfer", []string{lock, queue, seen}, []any{me, "nobody"}},
	}
}

// leaderRecords are the states of the record, by name.
func leaderRecords() map[string]map[string]any {
	record := func(token, holder string, more ...any) map[string]any {
		r := map[string]any{
			"v": "1", "holder": holder, "token": token, "term": "7", "acquired": "1763000000000",
			"renewed": "1763000000000", "lease": "60000", "metadata": "{}",
		}
		for i := 0; i < len(more); i += 2 {
			r[fmt.Sprint(more[i])] = more[i+1]
		}
		return r
	}
	return map[string]map[string]any{
		"none":     nil,
		"mine":     record("1700000000000000", "me"),
		"older":    record("1600000000000000", "older"),
		"greater":  record("1800000000000000", "greater"),
		"released": record("1700000000000000", "", "released", "1763000000000"),
		"newer":    {"v": "2", "holder": "newer"},
		"broken":   {"term": "x"},
		"wrong":    nil, // a key of another type
	}
}

// Every script of an election, in every state of its keys, run twice: the second
// answer is the first, the state stays, and what may not be touched is not. Each
// runs as a user who may touch no key but its own.
func TestLeaderScriptsTwiceInEveryState(t *testing.T) {
	onBoth(t, func(e *env) {
		key := e.key(boardKey, "leader")
		runner := func([]string) *redis.Client { return e.raw }
		if e.real != nil {
			clients := map[string]*redis.Client{}
			runner = func(keys []string) *redis.Client {
				id := strings.Join(keys, " ")
				if clients[id] == nil {
					user := fmt.Sprint("user", len(clients))
					rules := []string{"reset", "on", ">secret", "+@all", "allchannels"}
					for _, k := range keys {
						rules = append(rules, "~"+k)
					}
					must(e, e.raw.ACLSetUser(e.Context(), user, rules...).Err())
					opt := e.direct()
					opt.Username, opt.Password = user, "secret"
					clients[id] = redis.NewClient(opt)
					e.Cleanup(func() { clients[id].Close() })
				}
				return clients[id]
			}
		}
		runs := 0
		for _, state := range lineStates() {
			if state.tomb || !state.fence {
				continue // nothing to these scripts
			}
			for name, rec := range leaderRecords() {
				for _, r := range leaderRuns(e) {
					e.establish(boardKey, state)
					must(e, e.raw.Del(e.Context(), key).Err())
					switch {
					case name == "wrong":
						must(e, e.raw.Set(e.Context(), key, "x", 0).Err())
					case rec != nil:
						must(e, e.raw.HSet(e.Context(), key, rec).Err())
						must(e, e.raw.PExpire(e.Context(), key, time.Hour).Err())
					}
					source, err := lockcore.ScriptSource(r.script)
					must(e, err)
					read := func() (map[string]string, snapshot) {
						fields, err := e.raw.HGetAll(e.Context(), key).Result()
						if err != nil && name != "wrong" {
							e.Fatal(err)
						}
						delete(fields, "renewed")
						return fields, e.snapshot(boardKey)
					}
					recBefore, lineBefore := read()
					first, err1 := runner(r.keys).Eval(e.Context(), source, r.keys, r.args...).Result()
					recMiddle, lineMiddle := read()
					second, err2 := runner(r.keys).Eval(e.Context(), source, r.keys, r.args...).Result()
					recAfter, lineAfter := read()
					runs++
					where := fmt.Sprintf("%s %v with %v and record %s", r.script, r.args, state, name)
					if err1 != nil || err2 != nil {
						if name == "wrong" && r.script != "leader_renew" {
							if !lineBefore.same(lineAfter) {
								t.Errorf("%s: half done", where)
							}
							continue
						}
						t.Errorf("%s: %v, %v", where, err1, err2)
						continue
					}
					one, two := fmt.Sprint(first), fmt.Sprint(second)
					if list, ok := first.([]any); ok && r.script == "leader_look" {
						one, two = fmt.Sprint(list[1:]), fmt.Sprint(second.([]any)[1:])
					}
					if one != two {
						t.Errorf("%s: answers %v, then %v", where, first, second)
					}
					if !maps.Equal(recMiddle, recAfter) || !lineMiddle.same(lineAfter) {
						t.Errorf("%s: twice changed %v, %v to %v, %v", where, recMiddle, lineMiddle, recAfter, lineAfter)
					}
					checkLeaderRun(t, where, r.script, state, name, recBefore, recMiddle, lineBefore, lineMiddle, first)
					if name != "wrong" && len(recMiddle) > 0 && e.raw.PTTL(e.Context(), key).Val() <= 0 {
						t.Errorf("%s: a record without TTL", where)
					}
				}
			}
		}
		if runs < 2000 {
			t.Errorf("%d runs", runs)
		}
	})
}

func checkLeaderRun(t *testing.T, where, script string, state lineState, name string, recBefore, rec map[string]string, before, after snapshot, answer any) {
	t.Helper()
	complain := func(format string, v ...any) {
		t.Helper()
		t.Errorf("%s: answer %v, record %v: %s", where, answer, rec, fmt.Sprintf(format, v...))
	}
	sameLine := before.same(after)
	switch script {
	case "leader_claim":
		list, _ := answer.([]any)
		switch {
		case state.lock != me:
			if list[0] != int64(0) || !maps.Equal(recBefore, rec) || !sameLine {
				complain("claimed without the lock")
			}
		case name == "newer":
			if list[0] != int64(-1) || !maps.Equal(recBefore, rec) {
				complain("a newer version's record was touched")
			}
		default:
			want := map[string]int64{"none": 1, "broken": 1, "mine": 7, "released": 7, "older": 8, "greater": 8}[name]
			if list[0] != want || rec["term"] != strconv.FormatInt(want, 10) || rec["token"] != "1700000000000000" {
				complain("want term %d", want)
			}
			if name != "released" && (rec["holder"] != "me" || rec["released"] != "") {
				complain("not the claim's record")
			}
			if !sameLine || after.left < 59*time.Second {
				complain("the lock: %+v", after)
			}
		}
	case "leader_renew":
		if (answer == int64(1)) != (state.lock == me) || !sameLine {
			complain("renewed what is not mine, or not what is")
		}
		if state.lock == me && after.left < 59*time.Second {
			complain("extended to %v", after.left)
		}
		if state.lock != me && !maps.Equal(recBefore, rec) || name == "newer" && rec["holder"] != "newer" {
			complain("the record was touched")
		}
		if state.lock == me && slices.Contains([]string{"none", "older", "greater"}, name) && (rec["holder"] != "me" || rec["term"] != "7") {
			complain("the record was not mended")
		}
	case "leader_vacate":
		vacant := state.lock == "" && (name == "mine" || name == "released")
		if (answer == int64(1)) != vacant || !sameLine {
			complain("want %v", vacant)
		}
		if vacant && (rec["holder"] != "" || rec["released"] == "") || !vacant && !maps.Equal(recBefore, rec) {
			complain("the record")
		}
	case "leader_transfer":
		inLine := slices.Contains(state.queue, living) && strings.Contains(where, "living]")
		want := int64(0)
		switch {
		case state.lock != me:
			want = -1
		case inLine:
			want = 1
		}
		if answer != want || want != 1 && !sameLine || want == 1 && after.queue[0] != living || len(before.queue) != len(after.queue) {
			complain("want %d, line %v", want, after.queue)
		}
	case "leader_look", "leader_line":
		if !sameLine || !maps.Equal(recBefore, rec) {
			complain("it only reads")
		}
	}
}

// The life of an election through the exported API.
func TestElection(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.election(e.client("a"), lockcore.ElectionConfig{Lease: ttl(5 * time.Second), Metadata: map[string]string{"k": "v"}})
		b := e.election(e.client("b"), lockcore.ElectionConfig{Lease: ttl(5 * time.Second)})
		if r, err := a.Leader(e.Context()); err != nil || r.Holder != "" || r.Term != 0 || r.Left != 0 {
			t.Errorf("before: %+v, %v", r, err)
		}
		var mu sync.Mutex
		var heard []string
		stop := b.Watch(func(r lockcore.LeaderRecord) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprintf("%s %d", r.Holder, r.Term))
		})
		news := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(heard, ", ")
		}
		e.until("it has read that nobody leads", func() bool { return news() == " 0" })
		l := e.campaign(a)
		if l.Term != 1 || l.Token() == 0 || a.Name() != "board" || a.Identity() != "a" {
			t.Errorf("term %d, token %d of %s for %s", l.Term, l.Token(), a.Identity(), a.Name())
		}
		r, err := b.Leader(e.Context())
		must(e, err)
		if r.Holder != "a" || r.Metadata["k"] != "v" || r.Left <= 0 || !r.Acquired.Equal(l.Since) {
			t.Errorf("the record is %+v", r)
		}
		e.until("it has heard of a", func() bool { return news() == " 0, a 1" })
		mustIs(t, l.Prefer(e.Context(), "b"), lockcore.ErrNoCandidate)
		must(e, l.Resign(e.Context()))
		mustIs(t, l.Resign(e.Context()), lockcore.ErrNotHeld)
		mustIs(t, l.Prefer(e.Context(), "b"), lockcore.ErrNotHeld)
		e.until("it has heard that nobody leads", func() bool { return news() == " 0, a 1,  1" })
		if r, err := b.Leader(e.Context()); err != nil || r.Released.IsZero() || r.Left != 0 {
			t.Errorf("after: %+v, %v", r, err)
		}
		l = e.campaign(b)
		e.until("it has heard of itself", func() bool { return news() == " 0, a 1,  1, b 2" })
		if l.Over() != 0 || !l.Drop(errors.New("enough")) || l.Drop(nil) || l.Over() == 0 || l.Remaining() != 0 {
			t.Error("it is not dropped, or twice")
		}
		mustIs(t, context.Cause(l.Context()), lockcore.ErrLeaseExpired)
		if e.pttl(boardKey) <= 0 {
			t.Error("the lock was given back")
		}
		stop()
		if stats := e.raw.PubSubNumSub(e.Context(), "noonlock:leader:board").Val(); stats["noonlock:leader:board"] != 0 {
			e.until("nobody listens", func() bool {
				return e.raw.PubSubNumSub(e.Context(), "noonlock:leader:board").Val()["noonlock:leader:board"] == 0
			})
		}
	})
}

// A record is read once for each change, however many watch it, and a flood of
// messages costs little.
func TestElectionWatchReadsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.linked("b")
		b := e.election(c, lockcore.ElectionConfig{})
		a := e.election(e.client("a"), lockcore.ElectionConfig{})
		told := 0
		for range 100 {
			e.Cleanup(b.Watch(func(lockcore.LeaderRecord) { told++ }))
		}
		e.pass(time.Second)
		reads, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: time.Nanosecond, Match: e.script("leader_look")})
		must(e, err)
		told = 0
		e.campaign(a)
		e.pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() != 1 {
			t.Errorf("%d were told, %d reads", told, reads.Fired())
		}
		for range 1000 {
			must(e, e.raw.Publish(e.Context(), "noonlock:leader:board", "forged").Err())
		}
		e.pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() > 3 {
			t.Errorf("after forged messages %d were told, %d reads", told, reads.Fired())
		}
	})
}

// A watch of a channel ends while another one begins: it does not take the
// subscription along. (The race is too narrow for this test to hit it each time.)
func TestWatchesComeAndGo(t *testing.T) {
	onBoth(t, func(e *env) {
		el := e.election(e.client("a"), lockcore.ElectionConfig{})
		listening := func() bool {
			const channel = "noonlock:leader:board"
			heard, err := e.raw.PubSubNumSub(e.Context(), channel).Result()
			must(e, err)
			return heard[channel] == 1
		}
		stop := el.Watch(func(lockcore.LeaderRecord) {})
		e.until("it listens", listening)
		for range 200 {
			var wg sync.WaitGroup
			wg.Go(stop)
			next := el.Watch(func(lockcore.LeaderRecord) {})
			wg.Wait()
			e.until("it still listens", listening)
			stop = next
		}
		stop()
	})
}

func TestElectionInput(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client("a")
		for _, name := range []string{"", "a b", "{a}", "a\x00", strings.Repeat("n", 192)} {
			_, err := c.Election(name, lockcore.ElectionConfig{})
			mustIs(t, err, lockcore.ErrConfig)
		}
		_, err := c.Election("board", lockcore.ElectionConfig{Metadata: map[string]string{"k": strings.Repeat("v", 4096)}})
		mustIs(t, err, lockcore.ErrConfig)
		_, err = c.Election("board", lockcore.ElectionConfig{Lease: ttl(-1)})
		mustIs(t, err, lockcore.ErrConfig)
		el := e.election(c, lockcore.ElectionConfig{})
		_, err = el.Campaign(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		_, err = el.Leader(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		_, err = el.Candidates(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		mustIs(t, e.campaign(el).Prefer(nil, "b"), lockcore.ErrConfig) //nolint:staticcheck // that is the test
	})
}
