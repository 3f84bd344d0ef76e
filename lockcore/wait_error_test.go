package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// mustName asserts that the error of a wait names the holder and, for a lock that has
// owners, the owner.
func (e *env) mustName(err error, holder, owner string) {
	e.Helper()
	mustIs(e, err, lockcore.ErrNotAcquired)
	var held *lockcore.HeldError
	if !errors.As(err, &held) {
		e.Fatalf("error %v, want one that names the holder", err)
	}
	if !e.owned() {
		owner = ""
	}
	if held.Holder != holder || held.Owner != owner || held.Name != "orders" {
		e.Errorf("held by %q, owner %q, name %q, want %q, %q", held.Holder, held.Owner, held.Name, holder, owner)
	}
	if held.TTL <= 0 || held.TTL > 20*time.Second {
		e.Errorf("for another %v", held.TTL)
	}
	if text := err.Error(); !strings.Contains(text, "held by "+holder) || strings.Contains(text, "owner") != e.owned() {
		e.Errorf("error %q", text)
	}
}

// underWay reports whether a wait on a real server was canceled before the reply that names the holder.
func (e *env) underWay(err error) bool { return e.Bubble == nil && errors.Is(err, lockcore.ErrUnknown) }

// If a wait ends with its context, the error names the holder, as that of TryLock does, and
// the owner if there is one. This holds for the first waiter and for the one behind it, on
// a new Client, whose first request does not queue, and on a Client that has waited before.
//
// Caught mutants: the replies to queued waiters do not carry the holder; the error of a
// wait does not contain it.
func TestWaitNamesTheHolder(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		if held := e.refused(e.mutex(b, "orders", cfg)); (held.Owner == "owner-1") != e.owned() {
			e.Errorf("TryLock: %+v", held)
		}
		var waiters []*pending
		for range 5 { // the first three get other replies than the later ones
			waiters = append(waiters, e.queued(e.mutex(b, "orders", cfg)))
		}
		for _, w := range waiters {
			w.cancel()
			_, err := w.wait()
			mustIs(e, err, context.Canceled)
			if e.underWay(err) {
				continue
			}
			e.mustName(err, "a", "owner-1") // see env.mutex
		}
		ctx, cancel := context.WithTimeout(e.Context(), time.Millisecond)
		defer cancel()
		_, err := e.mutex(b, "orders", cfg).Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("error %v", err)
		}
		e.unlock(lease)
	})
}

// The error names the holder of the last look.
func TestWaitNamesTheLastHolderSeen(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, b, c := e.Client("a"), e.Client("b"), e.Client("c")
		cfg := ttl(20 * time.Second)
		lease := e.try(e.mutex(a, "orders", cfg))
		next := e.queued(e.mutex(b, "orders", cfg))
		last := e.queued(e.mutex(c, "orders", cfg))
		e.unlock(lease)
		second := next.granted()
		e.Pass(30 * time.Second) // everybody has looked
		last.cancel()
		_, err := last.wait()
		e.mustName(err, "b", "owner-2")
		e.unlock(second)
	})
}

// The server hangs when the wait ends: the error contains the last known holder.
func TestWaitNamesTheHolderInAnOutage(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a := e.Client("a")
		b, f := e.Linked("b")
		cfg := ttl(20 * time.Second)
		e.try(e.mutex(a, "orders", cfg))
		w := e.queued(e.mutex(b, "orders", cfg))
		cut := f.Partition()
		e.Pass(time.Minute)
		lockcoretest.MustFire(e, cut)
		w.cancel()
		_, err := w.wait()
		var held *lockcore.HeldError
		if !errors.As(err, &held) || held.Holder != "a" || held.TTL != 0 {
			e.Errorf("error %v (%+v)", err, held)
		}
	})
}

// Of several readers, the error names the one whose lease ends last, with its owner. For a
// foreign key it names nothing.
func TestWaitNamesAReader(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		read, err := e.rw(a, "orders", "r1", ttl(5*time.Second)).RLock(e.Context())
		must(e, err)
		longer, err := e.rw(a, "orders", "r2", ttl(20*time.Second)).RLock(e.Context())
		must(e, err)
		w := e.queued(e.rw(b, "orders", "w", ttl(5*time.Second)))
		w.cancel()
		_, err = w.wait()
		var held *lockcore.HeldError
		if !e.underWay(err) && (!errors.As(err, &held) || held.Holder != "a" || held.Owner != "r2") {
			e.Errorf("error %v", err)
		}
		e.unlock(read)
		e.unlock(longer)
		must(e, e.Raw.Set(e.Context(), e.key("foreign", "lock"), "secret", time.Minute).Err())
		f := e.queued(e.mutex(b, "foreign", ttl(5*time.Second)))
		f.cancel()
		_, err = f.wait()
		if !e.underWay(err) && (!errors.As(err, &held) || held.Holder != "") || strings.Contains(err.Error(), "secret") {
			e.Errorf("error %v", err)
		}
	})
}
