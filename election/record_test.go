package election

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func key(part string) string { return "noonlock:{election/board}:" + part }

func handle(e *testenv.Env, c *lockcore.Client, ttl time.Duration) *Election {
	e.Helper()
	return testenv.Call(newElection(c, "board", (*lock.LeaseConfig)(new(testenv.TTL(ttl))), nil)).Must(e)
}

func campaign(e *testenv.Env, el *Election) *term {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), testenv.Patience)
	defer cancel()
	return testenv.Call(el.campaign(ctx)).Must(e)
}

// lead returns a leadership whose record is written.
func lead(e *testenv.Env, el *Election) *term {
	e.Helper()
	l := campaign(e, el)
	l.begin()
	e.Until("the record has the leadership", func() bool {
		r, err := el.Record(e.Context())
		return err == nil && r.Token == l.lease.Token() && r.Left > 0
	})
	return l
}

// A record is read once for each change, for any number of observers, and a flood of
// messages costs little.
func TestElectionWatchReadsOnce(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		c, f := e.Linked("b")
		b := handle(e, c, 0)
		a := handle(e, e.Client("a"), 0)
		told := 0
		for range 100 {
			e.Cleanup(b.watch(func(LeaderRecord) { told++ }))
		}
		e.Pass(time.Second)
		reads, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: time.Nanosecond, Match: lua().Match(e, "leader_read")})
		testenv.Must(e, err)
		told = 0
		leader := campaign(e, a)
		leader.begin()
		e.Pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() != 1 {
			t.Errorf("%d were notified, %d reads", told, reads.Fired())
		}
		for range 1000 {
			testenv.Must(e, e.Raw.Publish(e.Context(), "noonlock:leader:0:board", "forged").Err())
		}
		e.Pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() > 3 {
			t.Errorf("after forged messages %d were notified, %d reads", told, reads.Fired())
		}
		slow, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 20 * time.Millisecond, Match: lua().Match(e, "leader_read")})
		testenv.Must(e, err)
		go func() { // messages during each read do not delay what it has found
			for retry.Sleep(e.Context(), time.Millisecond, nil) {
				e.Raw.Publish(e.Context(), "noonlock:leader:0:board", "forged")
			}
		}()
		testenv.Must(e, leader.lease.Unlock(e.Context()))
		e.Pass(100 * time.Millisecond)
		if told != 200 {
			t.Errorf("during a flood of messages, %d were notified of the end", told-100)
		}
		lockcoretest.MustFire(t, slow)
	})
}

// A request concerns one term: not the one before, and not a leadership whose lock another
// candidate holds already, or another program. Before the record names a leader, nobody is asked.
// Mutants: the token is not compared; nor is the attempt.
func TestAskOfOneTerm(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		a := handle(e, e.Client("a"), time.Hour)
		asks := func(what string, token uint64, want error) {
			e.Helper()
			before, err := a.Record(e.Context())
			testenv.Must(e, err)
			err = a.ask(lockcore.WithOperator(e.Context(), lockcore.Operator{Who: "ann@host", Reason: what}), token, "b")
			if want != nil {
				testenv.MustIs(e, err, want)
			} else {
				testenv.Must(e, err)
			}
			r, err := a.Record(e.Context())
			testenv.Must(e, err)
			if want == nil && (r.Asked == nil || r.Asked.By != "ann@host" || r.Asked.Reason != what || r.Asked.To != "b") {
				e.Errorf("%s: asked is %+v", what, r.Asked)
			}
			if want != nil && r.Asked != before.Asked {
				e.Errorf("%s: asked is %+v", what, r.Asked)
			}
		}
		asks("nobody has led", 1, ErrNoLeader)
		l := campaign(e, a)
		asks("its work has not begun", l.lease.Token(), ErrTermOver)
		l.begin()
		e.Until("its work has begun", func() bool { return testenv.Call(a.Record(e.Context())).Must(e).Left > 0 })
		asks("a term before", l.lease.Token()-1, ErrTermOver)
		mine := e.Raw.Get(e.Context(), key("lock")).Val()
		for who, lock := range map[string]string{"another candidate": "nl1:X.1/b", "another program": "x"} {
			testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), lock, time.Hour).Err())
			asks(who+" has the lock", l.lease.Token(), ErrTermOver)
		}
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), mine, time.Hour).Err())
		asks("it leads", l.lease.Token(), nil)
		testenv.Must(e, l.lease.Unlock(e.Context()))
		second := lead(e, a)
		if r, err := a.Record(e.Context()); err != nil || r.Asked != nil {
			e.Errorf("the next term is asked: %+v, %v", r.Asked, err)
		}
		asks("the term before", l.lease.Token(), ErrTermOver)
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 2).Err())
		testenv.MustIs(e, a.ask(e.Context(), second.lease.Token(), ""), ErrNewerSchema)
	})
}

const (
	marker  = "noonlock:quorum"
	channel = "noonlock:leader:0:board"
	tomb    = "noonlock:{election/board}:tomb:ALIVE.1"
)

// timedServer is one server of a quorum, in list 2/5, with exact milliseconds.
type timedServer struct {
	*testenv.Timed
	sub *redis.PubSub
}

func onTimedServer(t *testing.T, test func(e *timedServer)) {
	t.Helper()
	lua().ToTheMillisecond(t, func(e *testenv.Timed) {
		sub := e.Raw.Subscribe(e.Context(), channel)
		defer sub.Close()
		_, err := sub.Receive(e.Context())
		testenv.Must(e, err)
		test(&timedServer{e, sub})
	})
}

func (e *timedServer) member(fields ...any) {
	e.Helper()
	testenv.Must(e, e.Raw.FlushDB(e.Context()).Err())
	_, run, _ := strings.Cut(strings.TrimSpace(e.Raw.Info(e.Context(), "server").Val()), "run_id:")
	testenv.Must(e, e.Raw.HSet(e.Context(), marker, "run", run, "list", "2/5", "after", e.MS(0), "longest", 60000, "top", 7).Err())
	if fields != nil {
		testenv.Must(e, e.Raw.HSet(e.Context(), marker, fields...).Err())
	}
}

// state returns the record as text, and the TTL of the lock.
func (e *timedServer) state() string {
	e.Helper()
	var parts []string
	all := e.Raw.HGetAll(e.Context(), key("leader")).Val()
	for _, f := range []string{"v", "holder", "token", "acquired", "renewed", "lease", "metadata", "released"} {
		if v, ok := all[f]; ok {
			parts = append(parts, f+"="+strings.ReplaceAll(v, e.MS(0), "NOW"))
		}
	}
	if len(all) > 0 {
		parts = append(parts, "for "+e.PTTL(key("leader")).String())
	}
	if e.Exists(key("lock")) {
		parts = append(parts, "locked for "+e.PTTL(key("lock")).String())
	}
	return strings.Join(parts, " ")
}

func TestLeaderKeepToTheMillisecond(t *testing.T) {
	onTimedServer(t, func(e *timedServer) {
		record := func(fields ...any) func() {
			all := append([]any{"v", "1", "holder", "other", "token", "17", "released", "5"}, fields...)
			return func() { e.Raw.HSet(e.Context(), key("leader"), all...) }
		}
		mine := "v=1 holder=pod-1 token=17 acquired=" + e.MS(-5*time.Millisecond) + " renewed=NOW lease=50000 metadata={} for 168h0m0s locked for 50s"
		const stays = "v=1 holder=other token=%s released=5 for -1ns locked for 50s"
		for _, c := range []struct {
			name    string
			marker  []any
			prepare func()
			want    string // after the first call, {1, 2} is {1, 1}
			state   string
			told    int
		}{
			{name: "no record", want: "[1 2]", state: mine, told: 1},
			{name: "of an earlier term", prepare: record("token", "16"), want: "[1 2]", state: mine, told: 1},
			{name: "of this term", prepare: record("released", ""), want: "[1 1]", state: "v=1 holder=other token=17 renewed=NOW released= for 168h0m0s locked for 50s"},
			{name: "of a later term", prepare: record("token", "18"), want: "[1 3]", state: fmt.Sprintf(stays, "18")},
			{name: "of a newer schema", prepare: record("token", "16", "v", "2"), want: "[1 3]", state: strings.Replace(fmt.Sprintf(stays, "16"), "v=1", "v=2", 1)},
			{name: "with another schema", prepare: record("token", "16", "v", "x"), want: "[1 3]", state: strings.Replace(fmt.Sprintf(stays, "16"), "v=1", "v=x", 1)},
			{name: "without a number", prepare: record("token", "x"), want: "[1 2]", state: mine, told: 1},
			{name: "of another type", prepare: func() { e.Raw.Set(e.Context(), key("leader"), "x", 0) }, want: "[1 3]", state: "locked for 50s"},
			{name: "the server waits", marker: []any{"after", e.MS(time.Second)}, want: "[10 1000]", state: strings.TrimSuffix(mine, " locked for 50s"), told: 1},
			{name: "the server has lost data", marker: []any{"run", "f00"}, want: "[8]"},
			{name: "another list", marker: []any{"list", "3/5"}, want: "[9 3/5]"},
			{name: "a longer TTL", marker: []any{"longest", "49999"}, want: "[11 49999]"},
			{name: "abandoned", prepare: func() { e.Raw.Set(e.Context(), tomb, "1", 0) }, want: "[6]"},
			{name: "the lock is another's", prepare: func() { e.Raw.Set(e.Context(), key("lock"), "other", time.Second) }, want: "[4]", state: "locked for 1s"},
			{name: "the lock is mine", prepare: func() { e.Raw.Set(e.Context(), key("lock"), me, time.Second) }, want: "[1 2]", state: mine, told: 1},
		} {
			e.member(c.marker...)
			if c.prepare != nil {
				c.prepare()
			}
			for range 2 { // twice is safe
				testenv.Equal(e, c.name, e.Run("leader_renew_member", []string{key("lock"), tomb, marker, key("leader")},
					me, 50000, "2/5", "17", "pod-1", "{}", 5, channel), c.want)
				if c.name != "of another type" {
					testenv.Equal(e, c.name+": the state", e.state(), c.state)
				}
				c.want = strings.Replace(c.want, "[1 2]", "[1 1]", 1)
			}
			if told := e.Received(e.sub, channel); len(told) != c.told {
				e.Errorf("%s: messages %q, want %d", c.name, told, c.told)
			}
		}
		testenv.Equal(e, "the committed token", e.Raw.HGet(e.Context(), marker, "top").Val(), "17")
	})
}

func TestLeaderViewToTheMillisecond(t *testing.T) {
	onTimedServer(t, func(e *timedServer) {
		view := func() string {
			return e.Run("leader_read_member", []string{key("lock"), key("leader"), marker}, "2/5")
		}
		e.member()
		testenv.Equal(e, "nothing", view(), "[1 -2 ]")
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), me, 3*time.Second).Err())
		testenv.Equal(e, "a grant", view(), "[1 0 me]")
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "token", "17").Err())
		testenv.Equal(e, "a grant beside a record", view(), "[1 0 me token 17]")
		before := e.state()
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "by", hash(me)).Err())
		testenv.Equal(e, "a leader", view(), "[1 3000  by "+hash(me)+" token 17]")
		e.member("after", e.MS(time.Second))
		testenv.Equal(e, "the server waits", view(), "[1 -2 ]")
		e.member("longest", 0)
		testenv.Equal(e, "any TTL", view(), "[1 -2 ]")
		e.member("run", "f00")
		testenv.Equal(e, "the server has lost data", view(), "[8]")
		e.member("list", "3/5")
		testenv.Equal(e, "another list", view(), "[9 3/5]")
		testenv.Equal(e, "the state", before, "token=17 for -1ns locked for 3s")
	})
}

// An operator may take rights away while a replica leads. The record stays as it is, and the
// lock is extended all the same.
func TestLeaderKeepUnderACL(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	keys := []string{key("lock"), tomb, marker, key("leader")}
	run := e.Raw.InfoMap(e.Context(), "server").Item("Server", "run_id")
	testenv.Must(e, e.Raw.HSet(e.Context(), marker, "run", run, "list", "2/5", "after", 0, "longest", 60000, "top", 17).Err())
	testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "1", "holder", "pod-1", "token", "17").Err())
	for i, rule := range []string{"-hset", "-pexpire"} {
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), me, time.Minute).Err())
		rdb := e.Narrowed(fmt.Sprint("user", i), keys, rule)
		got, err := rdb.Eval(e.Context(), lua().Source(t, "leader_renew_member"), keys, me, time.Hour.Milliseconds(), "2/5", "17", "pod-1", "{}", 5, channel).Result()
		if err != nil || fmt.Sprint(got) != "[1 1]" {
			t.Errorf("with %s: %v, %v", rule, got, err)
		}
		if left := e.PTTL(key("lock")); left <= time.Minute {
			t.Errorf("with %s, the lock ends in %v", rule, left)
		}
	}
}
