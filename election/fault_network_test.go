package election_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The leader is cut off in both directions, and its requests arrive late. It stops before
// another replica leads, and does not affect that one. Whatever the length of the outage,
// it leads again afterwards.
//
// Caught mutants: Run returns after a loss; a renewal creates the lock.
func TestFault07_Blackhole(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		cut := f.Partition()
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		b.leads(1)
		e.Pass(2 * leaseDuration)
		if e.Bubble != nil {
			e.Pass(10 * time.Minute) // of any length
		}
		lockcoretest.MustFire(e, cut)
		f.Heal() // late requests are delivered
		e.queued(1)
		if _, n := b.term(); e.Bubble != nil && (n != 1 || !b.le.IsLeader()) || errors.Is(b.lost(), lockcore.ErrLeaseLost) {
			t.Error("what arrived late ended the successor's lead")
		}
		b.stop()
		a.leads(2)
		e.Until("it knows", func() bool { return a.le.GetLeader() == "a" })
		e.history.Require(e)
	})
}

// The server is unreachable for all replicas, for a short or a long time. Afterwards one
// leads again without intervention.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 20 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				a, b, c := e.replica(e.Client("a"), election.Config{}), e.replica(e.Client("b"), election.Config{}), e.replica(e.Client("c"), election.Config{})
				all := []*replica{a, b, c}
				e.queueUp(all...)
				first := a.leads(1)
				e.Bubble.Stop()
				e.Pass(outage)
				must(e, e.Bubble.Start(false))
				leader := func() (n int) {
					for _, r := range all {
						if r.le.IsLeader() {
							n++
						}
					}
					return n
				}
				begin := e.Clock()
				e.Until("one replica leads", func() bool { return leader() == 1 })
				// At worst the lock of the leader that had to stop must expire first.
				if took := e.Clock() - begin; took > 6*time.Second {
					t.Errorf("after an outage of %v there was no leader for %v", outage, took)
				}
				e.queued(2)
				if _, n := a.term(); outage < 8*time.Second && n != 1 {
					t.Errorf("it has led %d times, from token %d", n, first.Token)
				}
				if leader() != 1 {
					t.Errorf("%d leaders", leader())
				}
				for _, r := range all {
					r.stop()
				}
				e.history.Require(e)
			})
		})
	}
}

// Requests pass and replies are lost. The leader stops in time, although it is still the
// leader for the server. A candidate whose replies are lost does not lead.
//
// Caught mutant: a request that was not answered counts as refused.
func TestFault08_RepliesDropped(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		// Its late tries may acquire the lock on the server; b leads when it expires.
		b.leads(1)
		lost.Lift()
		f.Cut()
		e.queued(1)
		e.history.Require(e)
	})
}

// The reply to the claim of a term is lost: the term is counted once, and its record is
// announced once.
//
// Caught mutant: leader_claim without the check of the record's token.
func TestFault08_ClaimReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: script("leader_claim"), Count: 1})
		a := e.replica(c, quick(""))
		term := a.run().leads(1)
		if lost.Fired() != 1 || term.Number != 1 {
			t.Errorf("lost %d, term %+v", lost.Fired(), term)
		}
		if r := e.record(); r["term"] != "1" || r["acquired"] != strconv.FormatInt(term.Since.UnixMilli(), 10) {
			t.Errorf("the record is %v", r)
		}
	})
}

// The reply to the release is lost: the successor leads, and the release does not count as
// a loss.
func TestFault08_ReleaseReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: script("mutex_leave"), Count: 1})
		must(e, a.le.Resign(e.Context()))
		if b.leads(1); lost.Fired() != 1 {
			t.Errorf("lost %d", lost.Fired())
		}
		e.queued(1)
		if !b.le.IsLeader() {
			t.Error("the second release ended the successor's lead")
		}
	})
}

// The grant and the message about the new leader are published while the candidate
// subscribes again. It leads nevertheless, and is notified.
//
// Caught mutant: no look when the subscription is back.
func TestFault39_GrantLostWhileReconnecting(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("b")
		a, b := e.replica(e.Client("a"), quick("")), e.replica(c, quick(""))
		e.queueUp(a, b)
		refused := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.Subscribes(), Count: 1})
		if f.CutSubscriptions() != 1 {
			t.Error("no subscription was cut")
		}
		must(e, refused.Wait(e.Context(), 1))
		a.stop() // b is not subscribed and is passed over
		begin := e.Clock()
		refused.Lift()
		b.leads(1)
		if took := e.Clock() - begin; e.Bubble != nil && took > 50*time.Millisecond {
			t.Errorf("it led %v after the subscription was back", took)
		}
		e.Until("it was notified", func() bool { return b.le.GetLeader() == "b" && b.leaderNames() == "a b" })
		e.history.Require(e)
	})
}

// All messages to a candidate are lost without a trace, including its grant: it leads after
// its next look.
//
// Caught mutant: a candidate looks only after a message.
func TestFault39_GrantMessageLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		client, f := e.Linked("c")
		a, b, c := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick("")), e.replica(client, quick(""))
		e.queueUp(a, b, c)
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
		a.stop()
		b.leads(1)
		b.stop()
		begin := e.Clock()
		c.leads(1)
		if took := e.Clock() - begin; took > 2*leaseDuration || lost.Fired() == 0 {
			t.Errorf("lost %d, it led after %v", lost.Fired(), took)
		}
		lost.Lift()
	})
}
