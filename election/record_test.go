package election

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func key(part string) string { return "noonlock:{election/board}:" + part }

func handle(e *testenv.Env, c *lockcore.Client, ttl time.Duration, metadata map[string]string) *Election {
	e.Helper()
	return testenv.Call(newElection(c, "board", (*lock.LeaseConfig)(new(testenv.TTL(ttl))), metadata)).Must(e)
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
		b := handle(e, c, 0, nil)
		a := handle(e, e.Client("a"), 0, nil)
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
		a := handle(e, e.Client("a"), time.Hour, nil)
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
