package election_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// terms returns the leaders of the terms in the list, newest first.
func (e *env) terms() string {
	e.Helper()
	var leaders []string
	for _, term := range testenv.Call(e.Raw.LRange(e.Context(), key("terms"), 0, -1).Result()).Must(e) {
		leaders = append(leaders, strings.SplitN(term, " ", 4)[3])
	}
	return strings.Join(leaders, " ")
}

// hears counts the messages about the leader.
func (e *env) hears() (count func() int) {
	e.Helper()
	channel := e.Channel("election/"+electionName, "leader:0:"+electionName)
	sub := e.Raw.Subscribe(e.Context(), channel)
	e.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(e.Context())
	must(e, err)
	return func() int { return len(e.Received(sub, channel)) }
}

// The first renewal of a leader is lost, or its reply, or it arrives when the next replica leads. The term is counted
// once and announced once, and a late request changes nothing.
//
// Caught mutants: a renewal writes the record without the lock; a second first renewal lists its term again.
func TestFault08_FirstRenewalLost(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]lockcoretest.Fault{
		"lost":       {Kind: lockcoretest.DropRequest},
		"reply lost": {Kind: lockcoretest.SwallowReply},
		"late":       {Kind: lockcoretest.DelayRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				client, f := e.Linked("a")
				a, b := e.replica(client, quick()), e.replica(e.Client("b"), quick())
				count := e.hears()
				kind.Match, kind.Count = e.script("leader_renew"), 1
				fault := f.Inject(e, kind)
				a.run().leads(1)
				must(e, fault.Wait(e.Context(), 1))
				if name != "late" {
					a.recorded(1)
					e.Pass(2 * leaseDuration)
					testenv.Equal(t, "terms", e.terms(), "a")
					testenv.Equal(t, "messages", count(), 1)
					return
				}
				b.run()
				e.queued(1)
				a.stop()
				second := b.recorded(1)
				fault.Lift()
				e.Pass(2 * leaseDuration)
				testenv.Equal(t, "token in the record", e.record()["token"], strconv.FormatUint(second, 10))
				testenv.Equal(t, "the newest term", e.terms()[:1], "b")
				if !b.le.IsLeader() {
					t.Error("the late request ended the next leadership")
				}
			})
		})
	}
}

// A candidate is frozen or stopped after the lock was granted to it and before it knows. Nobody is shown as the leader
// meanwhile. If the reader of a release is deaf, it finds the end by itself.
//
// Caught mutants: the holder of the lock counts as the leader; the check of a grant does not end the record.
func TestFault03_FrozenBeforeItKnowsOfItsGrant(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		inBubble(t, func(e *env) {
			client, f := e.Linked("b")
			deaf, net := e.Linked("reader")
			net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel(e.Channel("election/"+electionName, "leader:0:"+electionName))})
			board := testenv.Call(election.NewElection(deaf, electionName)).Must(e)
			changed := board.Watch(e.Context())
			a, b := e.replica(e.Client("a"), quick()), e.replica(client, quick())
			e.queueUp(a, b)
			look := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_acquire")})
			a.stop()
			must(e, look.Wait(e.Context(), 1))
			r := testenv.Call(board.Record(e.Context())).Must(e)
			if r.Granted != "b" || r.Left != 0 || r.Holder != "a" {
				t.Errorf("the record is %+v", r)
			}
			testenv.Call(board.Resign(e.Context(), 0)).MustFail(e, election.ErrNoLeader)
			if stopped {
				b.stop()
			}
			e.Pass(2 * time.Second) // the grant has ended, and was checked
			if r := testenv.Call(board.Record(e.Context())).Must(e); r.Granted+r.Holder != "" || r.Released.IsZero() {
				t.Errorf("afterwards, the record is %+v", r)
			}
			select {
			case <-changed: // the first reading
			default:
			}
			e.Pass(12 * time.Minute)
			if len(changed) == 0 {
				t.Error("the end was not noticed without a message")
			}
			b.never()
		})
	}
}

// The record is deleted while a replica leads: the next renewal writes it again, with the time at which that began
// to lead. An operator can ask that leader to resign, and the next token is greater.
func TestRecordIsDeleted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		cfg := election.Config{LeaseDuration: time.Hour}
		a, b := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg)
		e.queueUp(a, b)
		first := a.leads(1)
		board, ann := e.operator()
		before := testenv.Call(board.Record(e.Context())).Must(e)
		must(e, e.Raw.Del(e.Context(), key("leader")).Err())
		e.Pass(10 * time.Minute)
		a.recorded(1)
		r := testenv.Call(board.Record(e.Context())).Must(e)
		if r.Acquired.Sub(before.Acquired).Abs() > time.Millisecond || r.Left <= 0 || r.Granted != "" {
			t.Errorf("the record is %+v, and was %+v", r, before)
		}
		testenv.Call(board.Resign(ann, first)).Must(e)
		if second := b.recorded(1); second <= first {
			t.Errorf("token %d after %d", second, first)
		}
	})
}

// A release without a successor is not answered, and sent again. The end is written once and announced once.
func TestFault26_ReleaseReplyLost(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		client, f := e.Linked("a")
		a := e.replica(client, quick())
		a.run().recorded(1)
		count := e.hears()
		f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("mutex_leave"), Count: 1})
		go a.stop()
		e.Until("the end is in the record", func() bool { return e.record()["released"] != "" })
		first := e.record()
		e.Pass(time.Minute)
		testenv.Equal(t, "the end", e.record()["released"], first["released"])
		testenv.Equal(t, "messages", count(), 1)
	})
}

// A candidate of a quorum has a minority of the servers, beside a leader that has resigned: it is not shown. With a
// majority, it is shown as one that has the lock.
func TestQuorumShowsNoMinority(t *testing.T) {
	t.Parallel()
	onQuorum(t, 3, func(e *quorumEnv) {
		a := e.replica(e.client("a"), quick())
		board := testenv.Call(election.NewElection(e.client("reader"), electionName)).Must(e)
		token := e.recorded(board, a.run(), 1)
		a.stop()
		e.Pass(time.Second)
		for i, granted := range []string{"", "ghost", "ghost"} {
			must(e, e.servers[i].Client().Set(e.Context(), key("lock"), "nl1:X.1/ghost", time.Minute).Err())
			for range 10 {
				r := testenv.Call(board.Record(e.Context())).Must(e)
				if r.Holder != "" || r.Left != 0 || r.Token != token || r.Granted != granted && (i != 1 || r.Granted != "") {
					t.Errorf("with %d servers, the record is %+v", i+1, r)
				}
			}
		}
	})
}

// jumping makes a Client with its own network. Its clock can jump like the clock of a
// process that was frozen: no timer has run.
func (e *env) jumping(identity string) (*lockcore.Client, *lockcoretest.Faults, *testenv.Clock) {
	e.Helper()
	clock := testenv.NewClock()
	opt, f := e.Link()
	return e.ClientOn(clock.Now, opt, lockcore.Config{Identity: identity}), f, clock
}

// The leader is frozen for longer than its lease, and no timer has run when it continues:
// its first call is refused, whichever it is. Then it queues again.
//
// Caught mutants: Remaining and Err wait for the keeper's timer; Check only checks whether
// the context is done.
func TestFault01_LeaderFrozen(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(r *replica) bool{
		"IsLeader": func(r *replica) bool { return !r.le.IsLeader() },
		"Err":      func(r *replica) bool { return r.ctx.Err() != nil && context.Cause(r.ctx) != nil },
		"Check":    func(r *replica) bool { return r.le.Check(0) != nil },
		"Resign":   func(r *replica) bool { return r.le.Resign(context.Background()) != nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				c, f, clock := e.jumping("a")
				a, b := e.replica(c, quick()), e.replica(e.Client("b"), quick())
				a.work = func(ctx context.Context) { <-ctx.Done() }
				e.queueUp(a, b)
				f.Partition() // a frozen process sends nothing
				clock.Advance(leaseDuration)
				jumped := time.Now()
				if !look(a) {
					t.Errorf("%s says that it leads", name)
				}
				if time.Since(jumped) != 0 {
					t.Error("time has passed: this test proves nothing")
				}
				b.leads(1)
				f.Cut()
				f.Heal()
				mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
				e.queued(1)
				b.stop()
				a.leads(2)
			})
		})
	}
}

// A candidate is frozen after it has sent its request for the lock and before it reads the reply. It does not
// begin to lead without remaining validity, and the record never names it.
//
// Caught mutant: a candidate does not check the clock after the grant.
func TestFault03_FrozenBeforeTheReply(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f, clock := e.jumping("a")
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
		a, b := e.replica(c, quick()), e.replica(e.Client("b"), quick())
		a.run()
		must(e, late.Wait(e.Context(), 1))
		clock.Advance(leaseDuration)
		e.Bubble.StepClock(leaseDuration) // it has passed for the server, too
		b.run().leads(1)
		late.Lift()
		e.WaitIdle()
		a.never()
		testenv.Equal(t, "the leader in the record", e.record()["holder"], "b")
		e.queued(1) // it has sent a new request
		must(e, b.le.Resign(e.Context()))
		a.leads(1)
		e.oneAtATime()
	})
}

// The server restarts with an old snapshot, in which another replica leads. That replica
// does not become the leader by it. The leader loses its lease at its next renewal, and the
// election continues. (Class D: tokens from after the snapshot may be granted again.)
//
// Caught mutant: a candidate concludes from the record that it leads.
func TestFault16_OldSnapshot(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick())
		e.queueUp(a, b)
		lock, fence, rec := e.Raw.Get(e.Context(), key("lock")).Val(), e.Raw.Get(e.Context(), key("fence")).Val(), e.record()
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.queued(1)
		_, err := e.Raw.TxPipelined(e.Context(), func(p redis.Pipeliner) error {
			p.Del(e.Context(), key("lock"), key("fence"), key("leader"), key("queue"), key("seen"))
			p.Set(e.Context(), key("lock"), lock, leaseDuration)
			p.Set(e.Context(), key("fence"), fence, time.Hour)
			p.HSet(e.Context(), key("leader"), rec)
			return nil
		})
		must(e, err)
		mustIs(e, b.ended(1), lockcore.ErrLeaseLost)
		if a.le.IsLeader() {
			t.Error("it leads by the old lock")
		}
		e.Until("one replica leads", func() bool { return a.le.IsLeader() || b.le.IsLeader() })
	})
}
