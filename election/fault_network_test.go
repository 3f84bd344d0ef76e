package election_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The leader is cut off in both directions, and its requests arrive late. It stops before
// another replica leads, and does not affect that one. Whatever the length of the outage,
// it leads again afterwards.
//
// Caught mutants: Run returns after a loss; a renewal creates the lock.
func TestFault07_Blackhole(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick()), e.replica(e.Client("b"), quick())
		e.queueUp(a, b)
		first := a.leads(1)
		cut := f.Partition()
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		second := b.leads(1)
		if second.Token <= first.Token || second.Number != 2 {
			t.Errorf("term %+v after %+v", second, first)
		}
		e.Pass(10 * time.Minute) // of any length
		lockcoretest.MustFire(e, cut)
		f.Heal() // late requests are delivered
		e.queued(1)
		if _, n := b.term(); n != 1 || !b.le.IsLeader() {
			t.Error("what arrived late ended the successor's lead")
		}
		b.stop()
		a.leads(2)
		e.Until("it knows", func() bool { return a.le.Leader() == "a" })
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
		a := e.replica(c, e.quick())
		term := a.run().leads(1)
		if lost.Fired() != 1 || term.Number != 1 {
			t.Errorf("lost %d, term %+v", lost.Fired(), term)
		}
		if r := e.record(); r["term"] != "1" || r["acquired"] != strconv.FormatInt(term.Since.UnixMilli(), 10) {
			t.Errorf("the record is %v", r)
		}
	})
}
