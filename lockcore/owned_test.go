package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) reentrant(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.ReentrantMutex {
	e.Helper()
	return call(c.ReentrantMutex(name, owner, cfg)).Must(e)
}

// A waiter whose name is now used by another kind gets an error at its next look, because it could never acquire the
// lock.
func TestWaiterOfAnotherKindIsNotified(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(4 * time.Second)
		pairs := [][2]locker{
			{e.mutex(c, "one", cfg), e.rw(c, "one", "me", cfg)},
			{e.rw(c, "two", "me", cfg), e.mutex(c, "two", cfg)},
		}
		for _, pair := range pairs {
			name := pair[0].Name()
			e.try(pair[0])
			waiter := e.queued(e.another(pair[0]))
			e.Raw.Del(e.Context(), e.key(name, "lock"), e.key(name, "queue"), e.key(name, "seen"))
			lease := e.try(pair[1])
			if _, err := waiter.wait(); !errors.Is(err, lockcore.ErrWrongKind) {
				e.Errorf("%s: %v", name, err)
			}
			e.unlock(lease)
		}
	})
}

// another returns a lock of the same kind and name for another owner.
func (e *env) another(m locker) locker {
	e.Helper()
	c := e.Client("another")
	cfg := ttl(4 * time.Second)
	switch m.(type) {
	case *lockcore.Mutex:
		return e.mutex(c, m.Name(), cfg)
	case *lockcore.ReentrantMutex:
		return e.reentrant(c, m.Name(), "another", cfg)
	default:
		return e.rw(c, m.Name(), "another", cfg)
	}
}

// reads is the read side of an RWMutex as a locker.
type reads struct{ *lockcore.RWMutex }

func (r reads) TryLock(ctx context.Context) (*lockcore.Lease, error) { return r.TryRLock(ctx) }

func (r reads) Lock(ctx context.Context) (*lockcore.Lease, error) { return r.RLock(ctx) }

func (e *env) rw(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.RWMutex {
	e.Helper()
	return call(c.RWMutex(name, owner, cfg)).Must(e)
}

// Who writes and reads keeps the token for each lease that follows.
// Caught mutant: a lease that reads is named, which keeps no token for a writer.
func TestWriterThatReadsKeepsItsToken(t *testing.T) {
	onBoth(t, func(e *env) {
		x := e.rw(e.Client("a"), "orders", "x", ttl(time.Minute))
		first := e.try(x)
		leases := []*lockcore.Lease{first}
		for range 8 {
			leases = append(leases, e.try(reads{x}), e.try(x))
		}
		for i, l := range leases {
			equal(e, fmt.Sprintf("the token of lease %d", i), l.Token(), first.Token())
			e.unlock(l)
		}
	})
}

// Only a write lease that is held can be downgraded.
func TestDowngradeRefused(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(20 * time.Second)
		for _, m := range []locker{e.mutex(c, "one", cfg), reads{e.rw(c, "three", "me", cfg)}} {
			lease := e.try(m)
			mustIs(e, lockcore.Downgrade(e.Context(), lease), lockcore.ErrNotWriter)
			e.unlock(lease)
		}
		mine := e.rw(c, "four", "me", cfg)
		lease := e.try(mine)
		for _, rw := range []*lockcore.RWMutex{e.rw(c, "four", "you", cfg), e.rw(c, "five", "me", cfg), e.rw(e.Client("b"), "four", "me", cfg)} {
			mustIs(e, rw.Downgrade(e.Context(), lease), lockcore.ErrNotWriter)
		}
		if err := mine.Downgrade(e.Context(), lockcore.FromContext(lease.Context())); err == nil {
			e.Error("the work downgrades the lease")
		}
		e.Raw.Del(e.Context(), e.key("four", "lock"))
		mustIs(e, lockcore.Downgrade(e.Context(), lease), lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		released := e.try(e.rw(c, "six", "me", cfg))
		e.unlock(released)
		mustIs(e, lockcore.Downgrade(e.Context(), released), lockcore.ErrNotHeld, lockcore.ErrReleased)
	})
}

// If the request or reply of a downgrade is lost, it is sent again and applied once.
func TestFault27_DowngradeReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		c, faults := e.Linked("a")
		e.warm("owned_downgrade")
		cfg := ttl(3 * time.Second)
		lease := e.try(e.rw(c, "orders", "a", cfg))
		lost := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: e.script("owned_downgrade"), Count: 1})
		swallowed := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("owned_downgrade"), Count: 1})
		must(e, lockcore.Downgrade(e.Context(), lease))
		if lost.Fired() != 1 || swallowed.Fired() != 1 {
			e.Errorf("%d requests and %d replies were lost, want one each", lost.Fired(), swallowed.Fired())
		}
		e.unlock(e.try(reads{e.rw(e.Client("b"), "orders", "b", cfg)}))
		e.unlock(lease)
	})
}
