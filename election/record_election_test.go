package election

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func key(part string) string { return "noonlock:{election/board}:" + part }

func handle(e *testenv.Env, c *lockcore.Client, ttl time.Duration, metadata map[string]string) *Election {
	e.Helper()
	return testenv.Call(newElection(c, "board", new(testenv.TTL(ttl)), metadata)).Must(e)
}

func campaign(e *testenv.Env, el *Election) *leadership {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), testenv.Patience)
	defer cancel()
	return testenv.Call(el.campaign(ctx)).Must(e)
}

// A leader of more than a week keeps leading, although the counter of tokens is gone, which
// ends a week after a grant. Its successor's token is greater nevertheless.
func TestElectionForLongerThanAWeek(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		a := handle(e, e.Client("a"), time.Hour, nil)
		b := handle(e, e.Client("b"), time.Hour, nil)
		first := campaign(e, a)
		for day := range 16 {
			e.Pass(12 * time.Hour)
			r := testenv.Call(b.Record(e.Context())).Must(e)
			if r.Holder != "a" || r.Left <= 0 || r.Left > time.Hour || first.lease.Remaining() <= 0 {
				t.Fatalf("after %d half days the record is %+v", day+1, r)
			}
		}
		if n := e.Raw.Exists(e.Context(), key("fence")).Val(); n != 0 {
			t.Error("the counter is still there")
		}
		testenv.Must(e, first.release(e.Context()))
		testenv.MustIs(e, first.release(e.Context()), lockcore.ErrNotHeld)
		testenv.MustIs(e, first.promote(e.Context(), "b"), lockcore.ErrNotHeld)
		if r, err := b.Record(e.Context()); err != nil || r.Left != 0 {
			t.Errorf("after it has resigned: %+v, %v", r, err)
		}
		second := campaign(e, b)
		if r, err := a.Record(e.Context()); err != nil || r.Holder != "b" || r.Left <= 0 || second.lease.Token() <= first.lease.Token() {
			t.Errorf("the record is %+v, %v; token %d after %d", r, err, second.lease.Token(), first.lease.Token())
		}
	})
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
		reads, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: time.Nanosecond, Match: lua().Match(e, "leader_look")})
		testenv.Must(e, err)
		told = 0
		leader := campaign(e, a)
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
		slow, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 20 * time.Millisecond, Match: lua().Match(e, "leader_look")})
		testenv.Must(e, err)
		go func() { // messages during each read do not delay what it has found
			for retry.Sleep(e.Context(), time.Millisecond, nil) {
				e.Raw.Publish(e.Context(), "noonlock:leader:0:board", "forged")
			}
		}()
		testenv.Must(e, leader.release(e.Context()))
		e.Pass(100 * time.Millisecond)
		if told != 200 {
			t.Errorf("during a flood of messages, %d were notified of the end", told-100)
		}
		lockcoretest.MustFire(t, slow)
	})
}
