package lockcore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/lockcore"
)

func (e *env) reentrant(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.ReentrantMutex {
	e.Helper()
	m, err := c.ReentrantMutex(name, owner, cfg)
	if err != nil {
		e.Fatalf("ReentrantMutex: %v", err)
	}
	return m
}

// leave releases a lease.
func (e *env) leave(lease *lockcore.Lease) {
	e.Helper()
	if err := lease.Unlock(e.Context()); err != nil {
		e.Fatalf("Unlock: %v", err)
	}
}

// An owner acquires any number of leases, in any process, and in each under one token. The lock is free
// when its last lease has ended. The three outcomes of a release are: still held, released,
// not held.
func TestReentrantMutex(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		one := e.try(e.reentrant(a, "orders", "worker-1", cfg))
		two := e.lock(e.reentrant(a, "orders", "worker-1", cfg))
		far := e.try(e.reentrant(b, "orders", "worker-1", cfg))
		if two.Token() != one.Token() || far.Token() <= one.Token() {
			e.Errorf("one owner has tokens %d, %d, %d", one.Token(), two.Token(), far.Token())
		}
		other := e.reentrant(b, "orders", "worker-2", cfg)
		if held := e.refused(other); held.Holder != "a" && held.Holder != "b" {
			e.Errorf("held by %q", held.Holder)
		}
		waiter := e.queued(other)
		late := e.try(e.reentrant(a, "orders", "worker-1", cfg)) // past the queue, or it would wait for itself
		e.leave(one)
		e.leave(late)
		e.leave(far)
		mustIs(e, one.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrReleased)
		if waiter.over() {
			e.Fatal("another owner came in while the first was inside")
		}
		e.leave(two)
		next := waiter.granted()
		if late.Token() <= far.Token() || next.Token() <= late.Token() {
			e.Errorf("token %d, after %d and %d", next.Token(), far.Token(), late.Token())
		}
		e.leave(next)
		if e.Exists(e.key("orders", "lock")) {
			e.Error("the key is left behind")
		}
	})
}

// The lease of a dead process ends by itself, although another lease of the same owner is
// renewed all the time.
func TestEntriesEndByThemselves(t *testing.T) {
	onBoth(t, func(e *env) {
		live := e.Client("live")
		dead, faults := e.Linked("dead")
		const lease = 3 * time.Second
		cfg := ttl(lease)
		kept := e.try(e.reentrant(live, "orders", "worker", cfg))
		gone := e.try(e.reentrant(dead, "orders", "worker", cfg))
		faults.Partition()
		mustIs(e, e.ended(gone), lockcore.ErrLeaseExpired)
		e.Pass(lease)
		e.leave(kept)
		e.unlock(e.try(e.reentrant(live, "orders", "stranger", cfg)))
		faults.Heal()
	})
}

// A name is of the kind that holds it, or else of that of its first waiter: a Mutex, or the locks with
// owners, which are one kind. The other kind is refused, and a waiter loses its turn to nobody.
// Mutants: a waiter of the other kind is skipped; it is not notified.
func TestFault32_KindsExcludeEachOther(t *testing.T) {
	onBoth(t, func(e *env) {
		of := func(owner string) map[string]locker {
			c, cfg := e.Client(owner), ttl(10*time.Second)
			rw := e.rw(c, "orders", owner, cfg)
			return map[string]locker{"mutex": e.mutex(c, "orders", cfg), "reentrant": e.reentrant(c, "orders", owner, cfg), "write": rw, "read": reads{rw}}
		}
		holders, waiters := of("holder"), of("waiter")
		for asked, m := range of("caller") {
			for kind, holder := range holders {
				ask := func(state string) {
					e.Helper()
					lease, err := m.TryLock(e.Context())
					want := lockcore.ErrNotAcquired
					if (asked == "mutex") != (kind == "mutex") {
						want = lockcore.ErrWrongKind
						if _, err := m.Lock(e.Context()); !errors.Is(err, want) {
							e.Errorf("Lock of %s while %s %s: %v", asked, kind, state, err)
						}
					} else if lease != nil && asked == "read" && kind == "read" {
						e.unlock(lease)
						return
					}
					if !errors.Is(err, want) {
						e.Errorf("TryLock of %s while %s %s: %v, want %v", asked, kind, state, err, want)
					}
				}
				lease := e.try(holder)
				ask("holds the name")
				e.unlock(lease)
				if kind == "read" {
					holder = holders["write"]
				}
				e.try(holder)
				waiter := e.queued(waiters[kind])
				e.Raw.Del(e.Context(), e.key("orders", "lock")) // its holder is gone without a message
				before := e.Clock()
				ask("waits")
				lease = waiter.granted()
				if took := e.Clock() - before; e.Bubble != nil && took > time.Second {
					e.Errorf("%s waited %v more after a call of %s", kind, took, asked)
				}
				e.unlock(lease)
			}
		}
	})
}

// A dead waiter keeps a free name for its kind no longer than a grant that it does not confirm, and not at all if
// its connection is closed.
func TestFault32_DeadWaiterOfAnotherKind(t *testing.T) {
	inBubble(t, func(e *env) {
		c, cfg := e.Client("a"), ttl(10*time.Second)
		for dead, m := range map[string]locker{"ns1:DEAD.1.%s.w/owner id": e.mutex(c, "one", cfg), "nl1:DEAD.1.%s/id": e.reentrant(c, "two", "me", cfg)} {
			queue := func(trusted string) {
				(&timed{env: e, now: time.Now()}).fillQueue(m.Name(), fmt.Sprintf(dead, trusted), time.Duration(0), time.Minute)
			}
			queue("t")
			e.unlock(e.try(m))
			queue("u")
			for range 2 {
				_, err := m.TryLock(e.Context())
				mustIs(e, err, lockcore.ErrWrongKind)
				e.Pass(400 * time.Millisecond)
			}
			if notes := e.Raw.HGet(e.Context(), e.key(m.Name(), "seen"), "!").Val(); strings.Count(notes, "\n") != 1 {
				e.Errorf("the notes are %q", notes)
			}
			e.Pass(300 * time.Millisecond)
			e.unlock(e.try(m))
		}
	})
}

// A waiter whose name is now used by another kind gets an error at its next look, because
// it could never acquire the lock.
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

// The rule for names also applies to owners.
func TestFault46_Owners(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.Client("a")
		for _, owner := range []string{"", "two words", "a{b}", "nul\x00", strings.Repeat("x", 201), "\xff"} {
			var refused *noonlock.ConfigError
			if _, err := c.ReentrantMutex("orders", owner, lockcore.LeaseConfig{}); !errors.As(err, &refused) || refused.Field != "owner" {
				e.Errorf("ReentrantMutex of owner %q: %v", owner, err)
			}
			if _, err := c.RWMutex("orders", owner, lockcore.LeaseConfig{}); !errors.As(err, &refused) || refused.Field != "owner" {
				e.Errorf("RWMutex of owner %q: %v", owner, err)
			}
		}
		var refused *noonlock.ConfigError
		if m, err := c.RWMutex("orders", "me", ttl(time.Millisecond)); m != nil || !errors.As(err, &refused) || refused.Field != "LeaseConfig.TTL" {
			e.Errorf("RWMutex: %v", err)
		}
		if _, err := c.ReentrantMutex("a b", "me", lockcore.LeaseConfig{}); !errors.Is(err, noonlock.ErrConfig) {
			e.Errorf("a bad name: %v", err)
		}
	})
}
