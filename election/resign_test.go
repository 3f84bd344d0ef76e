package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// queue returns the queued candidates by identity.
func (r *replica) queue() string {
	r.e.Helper()
	queue, err := r.le.Election().Candidates(r.e.Context())
	must(r.e, err)
	var names []string
	for i, c := range queue {
		if c.Since.IsZero() || i > 0 && !queue[i-1].Promoted && c.Since.Before(queue[i-1].Since) {
			r.e.Errorf("the queue is %v", queue)
		}
		names = append(names, c.Identity)
	}
	return strings.Join(names, " ")
}

// An elector that resigns is queued last, and each candidate has its turn. All are notified of every leader, in one order.
func TestResign(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b, c := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick()), e.replica(e.Client("c"), e.quick())
		e.queueUp(a, b, c)
		leaders := ""
		for round := range 2 {
			for i, r := range []*replica{a, b, c} {
				r.leads(round + 1)
				e.queued(2)
				leaders = strings.TrimSpace(leaders + " " + r.le.Identity())
				for _, o := range []*replica{a, b, c} {
					e.Until("it is notified", func() bool { return o.leaderNames() == leaders && o.le.Leader() == r.le.Identity() })
				}
				if want := []string{"b c", "c a", "a b"}[i]; a.queue() != want {
					t.Errorf("the queue is %q, want %q", a.queue(), want)
				}
				must(e, r.le.Resign(e.Context()))
				mustIs(e, r.ended(round+1), election.ErrResigned)
				if err := r.le.Resign(e.Context()); !errors.Is(err, election.ErrNotLeader) {
					t.Errorf("resigning twice: %v", err)
				}
			}
		}
		a.leads(3)
		e.oneAtATime()
	})
}

// The named candidate leads next, at any place of the queue, and the others keep their order. An identity that is not
// queued, or gives no sign of life, is refused, and the leader keeps leading.
func TestTransfer(t *testing.T) {
	onBoth(t, func(e *env) {
		var all []*replica
		for i := range 5 {
			all = append(all, e.replica(e.Client(fmt.Sprint("r", i)), e.quick()))
		}
		e.queueUp(all...)
		last := testenv.Call(e.Raw.ZRange(e.Context(), key("queue"), -1, -1).Result()).Must(e)
		must(e, e.Raw.HSet(e.Context(), key("seen"), last[0], 1).Err())
		for identity, refusal := range map[string]error{"absent": election.ErrNoCandidate, "r0": election.ErrNoCandidate, "r4": election.ErrNoCandidate, "\n": noonlock.ErrConfig} {
			err := all[0].le.TransferTo(e.Context(), identity)
			mustIs(e, err, refusal)
			if want := fmt.Sprintf("election: transfer to %q in %q: ", identity, electionName); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("to %q: %v", identity, err)
			}
		}
		if got := all[0].queue(); got != "r1 r2 r3" || !all[0].le.IsLeader() {
			t.Errorf("the queue is %q, leader %v", got, all[0].le.IsLeader())
		}
		must(e, all[0].le.TransferTo(e.Context(), "r3"))
		all[3].leads(1)
		mustIs(e, all[0].ended(1), election.ErrResigned)
		mustIs(e, all[0].le.TransferTo(e.Context(), "r1"), election.ErrNotLeader)
		e.Until("the others keep their order", func() bool { return strings.HasPrefix(all[0].queue(), "r1 r2 ") })
		must(e, all[3].le.TransferTo(e.Context(), "r1")) // the head
		all[1].leads(1)
		all[2].never()
		e.oneAtATime()
	})
}

// While the work drains, the candidate that TransferTo has named stays the head of the queue: another one rejoins at its
// old place, and the queue is lost.
func TestTransferWhileTheWorkDrains(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := quick()
		cfg.LeaseDuration, cfg.RenewDeadline = 4*time.Second, 3*time.Second
		link, net := e.Linked("b")
		a, b, named := e.replica(e.Client("a"), cfg), e.replica(link, cfg), e.replica(e.Client("c"), cfg)
		hold, transferred := make(chan struct{}), make(chan error, 1)
		a.work = func(context.Context) { <-hold }
		e.queueUp(a, b, named)
		cut := net.Partition()
		e.Until("b has expired", func() bool { return a.queue() == "c" })
		lockcoretest.MustFire(e, cut)
		go func() { transferred <- a.le.TransferTo(context.Background(), "c") }()
		e.WaitIdle()
		net.Cut()
		net.Heal()
		e.Until("b is back", func() bool { return a.queue() == "c b" })
		e.Pass(2 * cfg.LeaseDuration) // they have looked, and know their places
		must(e, e.Raw.Del(e.Context(), key("queue"), key("seen")).Err())
		e.Until("both are back", func() bool { return a.queue() == "c b" })
		close(hold)
		must(e, <-transferred)
		named.leads(1)
		b.never()
		e.oneAtATime()
	})
}

// A lost message is made up for when the subscription is back, and soon without that.
func TestOnNewLeaderAfterLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("c")
		a, b, far := e.replica(e.Client("a"), quick()), e.replica(e.Client("b"), quick()), e.replica(c, quick())
		e.queueUp(a, b, far)
		leader, next, known := a, b, "a"
		for _, notice := range []func(){func() { f.CutSubscriptions() }, func() { e.Pass(66*leaseDuration + time.Second) }} {
			e.Pass(time.Second) // what is being read has been read, and the subscription is back
			lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:leader:0:" + electionName), Count: 1})
			must(e, leader.le.TransferTo(e.Context(), next.le.Identity()))
			e.queued(2)
			e.Pass(10 * time.Millisecond)
			if lost.Fired() != 1 || far.leaderNames() != known {
				t.Errorf("lost %d, reported %q, want %q", lost.Fired(), far.leaderNames(), known)
			}
			notice()
			known += " " + next.le.Identity()
			e.Until("it has caught up", func() bool { return far.leaderNames() == known })
			leader, next = next, leader
		}
	})
}

// Candidates do not poll, even with a short RetryPeriod. The only queued candidate on its
// Client sends less than one request per lease, for its place and the record, and a PING every
// 10 s. The rest is for the requests of the leader of a thousand candidates.
func TestCandidatesDoNotPoll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("b")
		all := []*replica{e.replica(e.Client("a"), quick())}
		for range 32 { // the first candidates of 32 processes look when the leader's lease ends
			all = append(all, e.replica(e.Client("near"), quick()))
		}
		e.queueUp(append(all, e.replica(c, quick()))...)
		total, sent := 0, map[string]int{}
		_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			sent[cmd[0]]++
			total++
			return false // it only counts
		}})
		must(e, err)
		const leases = 60
		e.Pass(leases * leaseDuration)
		pings := int(leases * leaseDuration / (10 * time.Second))
		if sent["PING"] > pings+1 || sent["EVALSHA"] < leases*8/10 || total-sent["PING"] > leases*97/100 {
			t.Errorf("it has asked %d times in %d leases: %v", total, leases, sent)
		}
	})
}
