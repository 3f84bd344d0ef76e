package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) reentrant(c *lockcore.Client, name, owner string, cfg lockcore.LeaseConfig) *lockcore.ReentrantMutex {
	e.Helper()
	return call(c.ReentrantMutex(name, owner, cfg)).Must(e)
}

// A name is of the kind that holds it, or else of that of its first waiter: a Mutex, or the locks with owners, which
// are one kind. The other kind is refused, and a waiter loses its turn to nobody.
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
				e.within(before, time.Second)
				e.unlock(lease)
			}
		}
	})
}

// A dead waiter keeps a free name for its kind no longer than a grant that it does not confirm.
func TestFault32_DeadWaiterOfAnotherKind(t *testing.T) {
	inBubble(t, func(e *env) {
		c, cfg := e.Client("a"), ttl(10*time.Second)
		for dead, m := range map[string]locker{"ns1:DEAD.1.w/owner id": e.mutex(c, "one", cfg), "nl1:DEAD.1/id": e.reentrant(c, "two", "me", cfg)} {
			(&timed{env: e, now: time.Now()}).fillQueue(m.Name(), dead, time.Duration(0), time.Minute)
			for range 2 {
				call(m.TryLock(e.Context())).MustFail(e, lockcore.ErrWrongKind)
				e.Pass(400 * time.Millisecond)
			}
			equal(e, "notes", strings.Count(e.Raw.HGet(e.Context(), e.key(m.Name(), "seen"), "!").Val(), "\n"), 1)
			e.Pass(300 * time.Millisecond)
			e.unlock(e.try(m))
		}
	})
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

// The results for the same owner and for another one while the lock is held in each way. The rows are those of
// RWMutex's comment.
func TestRWMutexTable(t *testing.T) {
	onBoth(t, func(e *env) {
		c, other := e.Client("x"), e.Client("y")
		for i, row := range []struct {
			name  string
			holds string // what x holds, then y: r and w, upper case of y
			asks  string
			want  error
		}{
			{"reading a free lock", "", "r", nil},
			{"writing a free lock", "", "w", nil},
			{"reading again", "r", "r", nil},
			{"writing again", "w", "w", nil},
			{"reading while one writes oneself", "w", "r", nil},
			{"reading again while one writes oneself", "wr", "r", nil},
			{"writing again while one reads, too", "wr", "w", nil},
			{"writing as the only reader", "r", "w", nil},
			{"writing as the only reader, twice over", "rr", "w", nil},
			{"reading with another reader", "R", "r", nil},
			{"reading again with another reader", "rR", "r", nil},
			{"writing while another reads", "R", "w", lockcore.ErrNotAcquired},
			{"reading while another writes", "W", "r", lockcore.ErrNotAcquired},
			{"writing while another writes", "W", "w", lockcore.ErrNotAcquired},
			{"reading while another writes and reads", "WR", "r", lockcore.ErrNotAcquired},
			{"writing while one reads, and another does", "rR", "w", lockcore.ErrUpgrade},
		} {
			name, cfg := fmt.Sprint("orders-", i), ttl(20*time.Second)
			x, y := e.rw(c, name, "x", cfg), e.rw(other, name, "y", cfg)
			side := map[rune]locker{'r': reads{x}, 'w': x, 'R': reads{y}, 'W': y}
			var held []*lockcore.Lease
			for _, hold := range row.holds {
				held = append(held, e.try(side[hold]))
			}
			asked := side[rune(row.asks[0])]
			lease, err := asked.TryLock(e.Context())
			upgrade := errors.Is(row.want, lockcore.ErrUpgrade)
			waits := row.want != nil && !upgrade
			if !errors.Is(err, row.want) || waits && errors.Is(err, lockcore.ErrUpgrade) {
				e.Fatalf("%s: TryLock: %v, want %v", row.name, err, row.want)
			}
			if upgrade {
				_, err := asked.Lock(e.Context()) // rather than a deadlock
				mustIs(e, err, lockcore.ErrUpgrade, lockcore.ErrNotAcquired)
			}
			var waiter *pending
			if waits {
				waiter = e.queued(asked)
			}
			for i, h := range held {
				if own := row.holds[i] >= 'a'; lease != nil && (own && h.Token() > lease.Token() || !own && row.asks == "w" && h.Token() >= lease.Token()) {
					e.Errorf("%s: token %d, after %d", row.name, lease.Token(), h.Token())
				}
				e.unlock(h)
			}
			if waiter != nil {
				lease = waiter.granted()
			}
			if lease != nil {
				e.unlock(lease)
			}
			if e.Exists(e.key(name, "lock")) {
				e.Errorf("%s: the key is left behind", row.name)
			}
		}
	})
}
