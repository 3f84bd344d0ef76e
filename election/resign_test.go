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

// An elector that resigns is queued last, and each candidate has its turn.
func TestResign(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b, c := e.trio()
		for round := range 2 {
			for i, r := range []*replica{a, b, c} {
				r.leads(round + 1)
				e.queued(2)
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
		if term := a.leads(3); term.Number != 7 {
			t.Errorf("term %d, want 7", term.Number)
		}
		e.history.Require(e)
	})
}

// Resign waits for the callback. If its caller does not wait, the resignation completes
// nevertheless.
func TestResignWithoutPatience(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a, b := e.replica(e.Client("a"), quick()), e.replica(e.Client("b"), quick())
		hold := make(chan struct{})
		a.work = func(context.Context) { <-hold }
		e.queueUp(a, b)
		ctx, cancel := context.WithCancel(e.Context())
		cancel()
		mustIs(e, a.le.Resign(ctx), context.Canceled)
		e.Pass(leaseDuration)
		b.never()
		close(hold)
		b.leads(1)
	})
}

// The named candidate leads next, at any place of the queue, and the others keep their
// order.
func TestTransfer(t *testing.T) {
	onBoth(t, func(e *env) {
		var all []*replica
		for i := range 5 {
			all = append(all, e.replica(e.Client(fmt.Sprint("r", i)), e.quick()))
		}
		e.queueUp(all...)
		must(e, all[0].le.TransferTo(e.Context(), "r3"))
		term := all[3].leads(1)
		if term.Number != 2 {
			t.Errorf("term %+v", term)
		}
		mustIs(e, all[0].ended(1), election.ErrResigned)
		e.queued(4)
		if got := all[0].queue(); got != "r1 r2 r4 r0" {
			t.Errorf("the queue is %q", got)
		}
		must(e, all[3].le.TransferTo(e.Context(), "r1")) // the head
		all[1].leads(1)
		for _, r := range []*replica{all[2], all[4]} {
			r.never()
		}
		e.history.Require(e)
	})
}

// While the work drains, a candidate that was cut off returns to its old place in the
// queue, before the named candidate: the named candidate leads. So it does if it was the
// head because the other one had expired.
func TestTransferPassesAReturningCandidate(t *testing.T) {
	t.Parallel()
	for _, lapsed := range []bool{false, true} {
		t.Run(fmt.Sprint("lapsed ", lapsed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				link, f := e.Linked("b")
				a, b, c := e.replica(e.Client("a"), quick()), e.replica(link, quick()), e.replica(e.Client("c"), quick())
				hold := make(chan struct{})
				a.work = func(context.Context) { <-hold }
				e.queueUp(a, b, c)
				began := e.Clock()
				if lapsed {
					cut := f.Partition()
					e.Until("b has lapsed", func() bool { return a.queue() == "c" })
					lockcoretest.MustFire(e, cut)
				}
				transferred := make(chan error, 1)
				go func() { transferred <- a.le.TransferTo(context.Background(), "c") }()
				e.Until("c is the head", func() bool {
					queue, err := a.le.Election().Candidates(e.Context())
					must(e, err)
					return queue[0].Identity == "c" && queue[0].Promoted
				})
				f.Cut()
				f.Heal()
				e.Until("b is back", func() bool { return a.queue() == "c b" })
				queue, err := a.le.Election().Candidates(e.Context())
				must(e, err)
				if moved := queue[0].Since.Sub(e.Start); queue[1].Promoted || moved < began || moved > e.Clock() {
					t.Errorf("the queue is %v", queue)
				}
				close(hold)
				must(e, <-transferred)
				c.leads(1)
				b.never()
				e.history.Require(e)
			})
		})
	}
}

// The last TransferTo counts while the work drains.
func TestTransferTwice(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b, c := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick()), e.replica(e.Client("c"), e.quick())
		hold := make(chan struct{})
		a.work = func(context.Context) { <-hold }
		e.queueUp(a, b, c)
		transferred := make(chan error, 3)
		for i, want := range []string{"c b", "b c", "c b"} {
			go func() { transferred <- a.le.TransferTo(context.Background(), want[:1]) }()
			e.Until(fmt.Sprint("move ", i), func() bool { return a.queue() == want })
		}
		close(hold)
		for range 3 {
			must(e, <-transferred)
		}
		c.leads(1)
		b.never()
		e.history.Require(e)
	})
}

// The queue is lost while the work drains: the named candidate returns to the head.
func TestTransferThroughALostQueue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := quick()
		cfg.LeaseDuration, cfg.RenewDeadline = 4*time.Second, 3*time.Second
		a, b, c := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg), e.replica(e.Client("c"), cfg)
		hold := make(chan struct{})
		a.work = func(context.Context) { <-hold }
		e.queueUp(a, b, c)
		transferred := make(chan error, 1)
		go func() { transferred <- a.le.TransferTo(context.Background(), "c") }()
		e.Until("c is the head", func() bool { return a.queue() == "c b" })
		e.Pass(2 * cfg.LeaseDuration) // it has looked, and knows its new place
		must(e, e.Raw.Del(e.Context(), key("queue"), key("seen")).Err())
		e.Until("both are back", func() bool { return a.queue() == "c b" })
		close(hold)
		must(e, <-transferred)
		c.leads(1)
		b.never()
		e.history.Require(e)
	})
}

// TransferTo to an identity that is not queued is a clear error, and the leader keeps
// leading.
func TestTransferWithoutACandidate(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b, _ := e.trio()
		for _, identity := range []string{"absent", "a", "b c", "b"} {
			err := a.le.TransferTo(e.Context(), identity)
			if identity == "b" {
				must(e, err)
				continue
			}
			mustIs(e, err, election.ErrNoCandidate)
			if want := fmt.Sprintf("election: transfer to %q in %q: ", identity, electionName); !strings.HasPrefix(err.Error(), want) {
				t.Errorf("to %q: %v", identity, err)
			}
			if !a.le.IsLeader() {
				t.Error("it does not lead any more")
			}
		}
		b.leads(1)
		mustIs(e, a.le.TransferTo(e.Context(), "b"), election.ErrNotLeader)
		mustIs(e, b.le.TransferTo(e.Context(), "\n"), noonlock.ErrConfig)
		if !b.le.IsLeader() {
			t.Error("it does not lead any more")
		}
	})
}

// A candidate without a recent sign of life is not listed, and TransferTo refuses it,
// although it may still be in the server's queue.
func TestLapsedCandidateIsNotListed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a, _, c := e.trio()
		queue, err := e.Raw.ZRange(e.Context(), key("queue"), 0, -1).Result()
		must(e, err)
		must(e, e.Raw.HSet(e.Context(), key("seen"), queue[0], 1).Err())
		if got := a.queue(); got != "c" {
			t.Errorf("the queue is %q", got)
		}
		mustIs(e, a.le.TransferTo(e.Context(), "b"), election.ErrNoCandidate)
		must(e, a.le.TransferTo(e.Context(), "c"))
		c.leads(1)
	})
}

// A named candidate is passed over if its process has died.
func TestTransferToTheDead(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("b")
		a, b, next := e.replica(e.Client("a"), e.quick()), e.replica(c, e.quick()), e.replica(e.Client("c"), e.quick())
		e.queueUp(a, b, next)
		cut := f.Partition()
		f.Cut()
		must(e, a.le.TransferTo(e.Context(), "b"))
		next.leads(1)
		b.never()
		must(e, cut.Wait(e.Context(), 1)) // b has tried to connect again
		f.Heal()
		e.history.Require(e)
	})
}

// Two processes with one identity, and two electors on one Client, are separate candidates.
func TestOneIdentityTwice(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		shared := e.Client("twin")
		a, b := e.replica(e.Client("twin"), quick()), e.replica(e.Client("twin"), quick())
		c, d := e.replica(shared, quick()), e.replica(shared, quick())
		all := []*replica{a, b, c, d}
		e.queueUp(all...)
		for round := range 8 {
			var leaders []*replica
			for _, r := range all {
				if r.le.IsLeader() {
					leaders = append(leaders, r)
				}
			}
			if len(leaders) != 1 {
				t.Fatalf("round %d: %d lead", round, len(leaders))
			}
			var want string
			if round%2 == 0 {
				must(e, leaders[0].le.TransferTo(e.Context(), "twin"))
				want = "twin twin twin"
			} else {
				must(e, leaders[0].le.Resign(e.Context()))
				want = "twin twin twin"
			}
			e.queued(3)
			e.Until("one leads", func() bool {
				return a.le.IsLeader() || b.le.IsLeader() || c.le.IsLeader() || d.le.IsLeader()
			})
			if got := a.queue(); got != want {
				t.Errorf("the queue is %q", got)
			}
		}
		for _, r := range all {
			r.leads(2)
			if got := r.leaderNames(); got != "twin" {
				t.Errorf("it was notified of %q", got)
			}
		}
		e.history.Require(e)
	})
}

// Ten replicas take turns. Each is notified of every leader, in one order, by messages.
func TestOnNewLeaderInOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var all []*replica
		var want []string
		for i := range 10 {
			all = append(all, e.replica(e.Client(fmt.Sprint("r", i)), election.Config{}))
		}
		e.queueUp(all...)
		for i := range 30 {
			want = append(want, fmt.Sprint("r", i%10))
			e.Pass(2 * time.Second) // a shorter term would have a pause after it
			for _, r := range all {
				if r.leaderNames() != strings.Join(want, " ") || r.le.Leader() != want[i] {
					t.Fatalf("%s was notified of %q, leader %q, want %q", r.le.Identity(), r.leaderNames(), r.le.Leader(), want)
				}
			}
			must(e, all[i%10].le.Resign(e.Context()))
			e.WaitIdle() // the next one leads, and no time has passed
			if !all[(i+1)%10].le.IsLeader() {
				t.Fatalf("%s does not lead", all[(i+1)%10].le.Identity())
			}
		}
	})
}

// A lost message is made up for when the subscription is back, and soon without that. Then
// the newest leader is reported.
func TestOnNewLeaderAfterLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("c")
		a, b, far := e.replica(e.Client("a"), quick()), e.replica(e.Client("b"), quick()), e.replica(c, quick())
		e.queueUp(a, b, far)
		e.Pass(10 * time.Millisecond) // what is being read has been read
		lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:leader:0:" + electionName), Count: 1})
		must(e, a.le.TransferTo(e.Context(), "b"))
		b.leads(1)
		e.Pass(10 * time.Millisecond)
		if lost.Fired() != 1 || far.leaderNames() != "a" {
			t.Errorf("lost %d, reported %q", lost.Fired(), far.leaderNames())
		}
		f.CutSubscriptions()
		e.Until("it has caught up", func() bool { return far.leaderNames() == "a b" })
		e.Pass(time.Second) // the subscription is back

		lost = f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:leader:0:" + electionName), Count: 2})
		must(e, b.le.TransferTo(e.Context(), "a"))
		e.queued(2)
		must(e, a.le.TransferTo(e.Context(), "b"))
		e.queued(2)
		e.Pass(10 * time.Millisecond)
		if lost.Fired() != 2 || far.leaderNames() != "a b" {
			t.Errorf("lost %d, reported %q", lost.Fired(), far.leaderNames())
		}
		must(e, b.le.TransferTo(e.Context(), "a"))
		e.Until("it has caught up", func() bool { return far.leaderNames() == "a b a" })
		e.Pass(10 * time.Millisecond)
		begin := e.Clock()
		lost = f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:leader:0:" + electionName), Count: 1})
		e.queued(2)
		must(e, a.le.TransferTo(e.Context(), "b"))
		e.Pass(66*leaseDuration + time.Second - (e.Clock() - begin))
		if lost.Fired() != 1 || far.leaderNames() != "a b a b" {
			t.Errorf("without a message: lost %d, reported %q", lost.Fired(), far.leaderNames())
		}
	})
}

// A slow OnNewLeader delays no term, is never called concurrently, and is then called with
// the newest leader.
func TestSlowOnNewLeader(t *testing.T) {
	onBoth(t, func(e *env) {
		hold := make(chan struct{})
		var notified []string
		slow, err := election.NewLeaderElector(e.Client("slow"), electionName, election.Callbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { notified = append(notified, identity); <-hold },
		}, e.quick())
		must(e, err)
		a, b := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick())
		e.queueUp(a, b)
		ctx, cancel := context.WithCancel(e.Context())
		done := make(chan error)
		go func() { done <- slow.Run(ctx) }()
		e.Until("it was notified of a", func() bool { return slow.Leader() == "a" })
		e.queued(2)
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.queued(2)
		must(e, b.le.Resign(e.Context()))
		e.Until("it leads", slow.IsLeader)
		e.Pass(100 * time.Millisecond) // it reads the record of its own term
		close(hold)
		e.Pass(10 * time.Millisecond)
		cancel()
		must(e, <-done)
		// When it has resigned, it may still be notified of its successor.
		if got := strings.Join(notified, " "); got != "a slow" && got != "a slow a" {
			t.Errorf("reported %q", got)
		}
	})
}
