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

// The leader is cut off both ways, and what it had sent arrives late. It stops
// before another leads, and nothing of it disturbs that one. Whatever the length
// of the outage, it leads again by itself.
//
// Caught mutants: Run that returns after a loss; a renewal that creates the lock.
func TestFault07_Blackhole(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.lineUp(a, b)
		cut := f.Partition()
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		b.leads(1)
		e.Pass(2 * leaseDuration)
		if e.Bubble != nil {
			e.Pass(10 * time.Minute) // of any length
		}
		lockcoretest.MustFire(e, cut)
		f.Heal() // late requests are delivered
		e.inLine(1)
		if _, n := b.term(); e.Bubble != nil && (n != 1 || !b.le.IsLeader()) || errors.Is(b.lost(), lockcore.ErrLeaseLost) {
			t.Error("what arrived late ended the successor's lead")
		}
		b.stop()
		a.leads(2)
		e.Until("it knows", func() bool { return a.le.GetLeader() == "a" })
		e.history.Require(e)
	})
}

// The whole election is cut off: an outage of the server, short or long. Afterwards
// one leads again, by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, outage := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 20 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				a, b, c := e.replica(e.Client("a"), election.Config{}), e.replica(e.Client("b"), election.Config{}), e.replica(e.Client("c"), election.Config{})
				all := []*replica{a, b, c}
				e.lineUp(all...)
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
				e.Until("somebody leads", func() bool { return leader() == 1 })
				// At worst the lock of the leader that had to stop runs out first.
				if took := e.Clock() - begin; took > 6*time.Second {
					t.Errorf("after an outage of %v nobody led for %v", outage, took)
				}
				e.inLine(2)
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

// Requests pass and replies are dropped. The leader stops in time although the
// server has it as the leader; a candidate whose replies are lost is nobody's
// leader.
//
// Caught mutant: a request that was not answered taken for one that was refused.
func TestFault08_RepliesDropped(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.lineUp(a, b)
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		// Its late tries may take the lock at the server; b leads when it lapses.
		b.leads(1)
		lost.Lift()
		f.Cut()
		e.inLine(1)
		e.history.Require(e)
	})
}

// The reply to the claim of a term is lost: the term is counted once, and its
// record is announced once.
//
// Caught mutant: leader_claim without the look at the record's token.
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

// The reply to the release is lost: the successor leads, and the release is not
// taken for a loss.
func TestFault08_ReleaseReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.lineUp(a, b)
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: script("mutex_leave"), Count: 1})
		must(e, a.le.Resign(e.Context()))
		if b.leads(1); lost.Fired() != 1 {
			t.Errorf("lost %d", lost.Fired())
		}
		e.inLine(1)
		if !b.le.IsLeader() {
			t.Error("the second release ended the successor's lead")
		}
	})
}

// The grant, and the news of the leader, are published while the candidate's
// subscription is being made anew: it leads all the same, and hears of it.
//
// Caught mutant: nobody looks when the subscription is back.
func TestFault39_GrantLostWhileReconnecting(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("b")
		a, b := e.replica(e.Client("a"), quick("")), e.replica(c, quick(""))
		e.lineUp(a, b)
		refused := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lockcoretest.Command("SUBSCRIBE"), Count: 1})
		if f.CutSubscriptions() != 1 {
			t.Error("no subscription was cut")
		}
		must(e, refused.Wait(e.Context(), 1))
		a.stop() // nobody hears of it: b is passed over
		begin := e.Clock()
		refused.Lift()
		b.leads(1)
		if took := e.Clock() - begin; e.Bubble != nil && took > 50*time.Millisecond {
			t.Errorf("it led %v after it could hear again", took)
		}
		e.Until("it has heard", func() bool { return b.le.GetLeader() == "b" && b.told() == "a b" })
		e.history.Require(e)
	})
}

// All messages to a candidate are lost, that of its grant too, without a trace: it
// leads after its next look.
//
// Caught mutant: a candidate that looks only when it is told to.
func TestFault39_GrantMessageLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		client, f := e.Linked("c")
		a, b, c := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick("")), e.replica(client, quick(""))
		e.lineUp(a, b, c)
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
