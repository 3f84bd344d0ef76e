package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

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
