package election

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A record that cannot be written prevents leadership: Campaign returns an error, does not
// retry, and releases the lock.
func TestElectionRecordCannotBeWritten(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		leader := key("leader")
		el := handle(e, e.Client("a"), time.Hour, nil)
		for _, spoil := range []struct {
			do   func() error
			what error
		}{
			{func() error { return e.Raw.Set(e.Context(), leader, "a string", 0).Err() }, nil},
			{func() error { return e.Raw.HSet(e.Context(), leader, "v", 2).Err() }, ErrNewerSchema},
		} {
			testenv.Must(e, spoil.do())
			ctx, cancel := context.WithTimeout(e.Context(), testenv.Patience)
			_, err := el.campaign(ctx)
			if err == nil || ctx.Err() != nil {
				t.Errorf("Campaign: %v, %v", err, ctx.Err())
			}
			cancel()
			if spoil.what != nil {
				testenv.MustIs(t, err, spoil.what, lockcore.ErrNotAcquired)
			}
			if e.Raw.Exists(e.Context(), key("lock")).Val() != 0 {
				t.Error("the lock was kept")
			}
			testenv.Must(e, e.Raw.Del(e.Context(), leader).Err())
		}
		testenv.Must(e, campaign(e, el).release(e.Context()))
	})
}

// A record that nobody can read prevents no leadership: the claim replaces it. Nor does a list of terms of another type.
func TestElectionRecordIsSpoilt(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "1", "token", "1", "term", "x").Err())
		testenv.Must(e, e.Raw.Set(e.Context(), key("terms"), "x", 0).Err())
		a := handle(e, e.Client("a"), time.Hour, nil)
		_, err := a.Record(e.Context())
		testenv.MustIs(e, err, errSpoilt)
		testenv.Must(e, a.prepare(e.Context()))
		l := campaign(e, a)
		if r, err := a.Record(e.Context()); err != nil || r.Holder != "a" || r.Token != l.lease.Token() {
			e.Errorf("the record is %+v, %v", r, err)
		}
	})
}

// A candidate whose claim is not answered fails when its lease has ended, and does not wait
// for a later answer. If its ctx ends, it fails at once.
func TestElectionClaimUnanswered(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("a")
			el := handle(e, c, 2*time.Second, nil)
			held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lua().Match(e, "leader_claim"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := el.campaign(ctx)
				failed <- err
			}()
			testenv.Must(e, held.Wait(e.Context(), 1))
			f.Partition()
			begin, longest := e.Clock(), 3*time.Second
			if cancelled {
				longest = time.Second
				cancel()
				testenv.MustIs(t, <-failed, lockcore.ErrNotAcquired, context.Canceled)
			} else {
				testenv.MustIs(t, <-failed, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
			}
			if took := e.Clock() - begin; took > longest {
				t.Errorf("cancelled %v: it failed after %v", cancelled, took)
			}
			held.Lift()
			f.Heal()
		})
	}
}

// The server has too few replicas for a moment: a claim is retried while the lease lasts.
func TestElectionClaimWhileTheServerIsShort(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		c, f := e.Linked("a")
		el := handle(e, c, 0, nil)
		held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lua().Match(e, "leader_claim"), Count: 1})
		led := make(chan error, 1)
		go func() {
			_, err := el.campaign(e.Context())
			led <- err
		}()
		testenv.Must(e, held.Wait(e.Context(), 1))
		e.Bubble.Server().SetError("NOREPLICAS Not enough good replicas to write.")
		held.Lift()
		e.Pass(time.Second)
		e.Bubble.Server().SetError("")
		testenv.Must(e, <-led)
	})
}

// A candidate that hears of its grant writes the record while it confirms the grant. If that
// request is not answered, it writes the record afterwards, of the same term.
func TestElectionClaimsWhileItConfirms(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("b")
			leader := campaign(e, handle(e, e.Client("a"), 0, nil))
			led := make(chan *leadership, 1)
			go func() { led <- campaign(e, handle(e, c, 0, nil)) }()
			e.Until("it is queued", func() bool { return e.Raw.ZCard(e.Context(), key("queue")).Val() == 1 })
			if lost {
				f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: lua().Match(e, "leader_claim"), Count: 1})
			}
			looks := func(cmd []string) bool {
				return slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasPrefix(arg, "look ") })
			}
			confirmation := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: looks})
			testenv.Must(e, leader.release(e.Context()))
			testenv.Must(e, confirmation.Wait(e.Context(), 1))
			e.Until("the record names the next leader", func() bool { return e.Raw.HGet(e.Context(), key("leader"), "holder").Val() == "b" })
			if len(led) > 0 {
				t.Error("it leads before the grant is confirmed")
			}
			confirmation.Lift()
			next := <-led
			if next.led.Load().Number != leader.led.Load().Number+1 || next.lease.Token() <= leader.lease.Token() || e.Raw.HGet(e.Context(), key("leader"), "token").Val() != strconv.FormatUint(next.lease.Token(), 10) {
				t.Errorf("lost %v: term %d and token %d after %d and %d", lost, next.led.Load().Number, next.lease.Token(), leader.led.Load().Number, leader.lease.Token())
			}
			testenv.Must(e, next.release(e.Context()))
		})
	}
}
