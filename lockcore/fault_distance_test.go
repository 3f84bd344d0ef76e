package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A round trip takes almost a third of the TTL, or of the longest time for one answer. A new Client
// acquires a lock, renews it for several TTLs and releases it, although a connection takes several
// round trips. It dials more often than nearby, because it begins to make another connection when one
// takes long, but not more and more often.
func TestFault105_RoundTripIsAPartOfTheTTL(t *testing.T) {
	dials := map[string]int{"one server": 10, "Sentinel and primary": 18, "cluster": 18, "quorum": 18}
	for _, lasts := range []struct{ roundTrip, ttl time.Duration }{
		{30 * time.Millisecond, 300 * time.Millisecond},
		{60 * time.Millisecond, 300 * time.Millisecond},
		{95 * time.Millisecond, 300 * time.Millisecond},
		{950 * time.Millisecond, 10 * time.Second},
		{990 * time.Millisecond, 10 * time.Second},
		{1490 * time.Millisecond, 10 * time.Second},
		{1500 * time.Millisecond, 10 * time.Second},
		{2900 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(fmt.Sprintf("%v of %v", lasts.roundTrip, lasts.ttl), func(t *testing.T) {
			farAwayFor(t, lasts.ttl, lasts.roundTrip, func(e *testenv.Env, c *lockcore.Client, d *distance) {
				m, err := c.Mutex("orders", ttl(lasts.ttl))
				must(e, err)
				ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
				defer cancel()
				l, err := m.Lock(ctx)
				must(e, err)
				left := l.Remaining()
				if left < lasts.ttl-3*lasts.roundTrip {
					e.Errorf("the lease is valid for another %v: the wait for the connection counts", left)
				}
				if onServer := e.Raw.PTTL(e.Context(), "noonlock:{orders}:lock").Val(); onServer > 0 && onServer < left {
					e.Errorf("the lease is valid for another %v, and on the server for %v", left, onServer)
				}
				e.Pass(10 * lasts.ttl)
				must(e, context.Cause(l.Context()))
				must(e, l.Unlock(e.Context()))
				if n := int(d.dials.Load()); n > dials[d.where] {
					e.Errorf("%d dials, want at most %d", n, dials[d.where])
				}
			})
		})
	}
}

// A round trip takes longer than an answer may take. Nothing is acquired, the error says so, and
// connections do not pile up.
func TestFault105_RoundTripIsTooLong(t *testing.T) {
	inTheDistance(t, 200*time.Millisecond, func(e *testenv.Env, c *lockcore.Client, d *distance) {
		m, err := c.Mutex("orders", ttl(300*time.Millisecond))
		must(e, err)
		_, err = m.TryLock(e.Context())
		if err == nil || !strings.Contains(err.Error(), "no answer within") && !strings.Contains(err.Error(), "answered in time") {
			e.Errorf("TryLock: %v", err)
		}
		ctx, cancel := context.WithTimeout(e.Context(), 12*time.Second)
		defer cancel()
		_, err = m.Lock(ctx)
		mustIs(e, err, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		if n := d.dials.Load(); n > 90 { // three servers: 35 to 62, as the pauses are random
			e.Errorf("%d dials in 12 s", n)
		}
	})
}

// A round trip takes longer than an answer may take for a lock with a short TTL, and less than for
// one with a long TTL. Requests of the first one fail all the time. The lease of the second one goes on.
func TestFault105_RoundTripIsTooLongForOthers(t *testing.T) {
	inTheDistance(t, 200*time.Millisecond, func(e *testenv.Env, c *lockcore.Client, _ *distance) {
		m, err := c.Mutex("orders", ttl(3*time.Second))
		must(e, err)
		l, err := m.Lock(e.Context())
		must(e, err)
		short, err := c.Mutex("short", ttl(300*time.Millisecond))
		must(e, err)
		ctx, cancel := context.WithTimeout(e.Context(), 30*time.Second)
		defer cancel()
		_, err = short.Lock(ctx)
		mustIs(e, err, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		must(e, context.Cause(l.Context()))
		must(e, l.Unlock(e.Context()))
	})
}

// Locks with different TTLs use the same connections. They share batches, so that they are acquired
// almost as often as those with one TTL.
func TestFault103_MixedTTLs(t *testing.T) {
	inTheDistance(t, 2*time.Millisecond, func(e *testenv.Env, c *lockcore.Client, _ *distance) {
		cycles := func(ttls ...time.Duration) int {
			var n atomic.Int64
			var all sync.WaitGroup
			until := e.Clock() + 100*time.Millisecond
			for i := range 30 {
				m, err := c.Mutex(fmt.Sprint("lock", i), ttl(ttls[i%len(ttls)]))
				must(e, err)
				all.Go(func() {
					for e.Clock() < until {
						l, err := m.TryLock(e.Context())
						if err == nil {
							err = l.Unlock(e.Context())
						}
						if err != nil {
							e.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
			all.Wait()
			return int(n.Load())
		}
		cycles(10 * time.Second) // connects
		one := cycles(10 * time.Second)
		six := cycles(150*time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, 6*time.Second, 10*time.Second)
		if six*10 < one*7 {
			e.Errorf("%d cycles with one TTL, %d with six", one, six)
		}
	})
}

// A real server accepts no other connection than that for calls, because it has as many clients as it may
// have. Renewals use it.
func TestFault105_TooManyClientsAfterAGrant(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		c := e.Client("a")
		_, err := c.Inspect(e.Context(), "orders")
		must(e, err)
		stat := func(section, name string) (n int) {
			_, after, _ := strings.Cut(e.Raw.Info(e.Context(), section).Val(), name+":")
			_, err := fmt.Sscan(after, &n)
			must(e, err)
			return n
		}
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", strconv.Itoa(stat("clients", "connected_clients"))).Err())
		lease := e.try(e.mutex(c, "orders", ttl(3*time.Second)))
		e.Pass(10 * time.Second)
		must(e, context.Cause(lease.Context()))
		if stat("stats", "rejected_connections") == 0 {
			e.Error("the server has refused no connection")
		}
		e.unlock(lease)
	})
}

// The server is away for a moment, and then may have lost data. Many callers learn at once that
// nothing may be granted, although their connections had failed.
func TestFault104_RefusedBeforeItIsSent(t *testing.T) {
	inBubble(t, func(e *env) {
		opt, f := e.Link()
		c := e.ClientWith(opt, lockcore.Config{LockDelay: 10 * time.Second})
		m, err := c.Mutex("orders", ttl(time.Second))
		must(e, err)
		away := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _, _ = m.TryLock(e.Context()) })
		}
		all.Wait()
		away.Lift()
		began := e.Clock()
		for range 30 {
			all.Go(func() {
				_, err := m.TryLock(e.Context())
				if _, ok := errors.AsType[*wire.DelayError](err); !ok {
					e.Errorf("TryLock: %v", err)
				}
			})
		}
		all.Wait()
		if took := e.Clock() - began; took > 0 {
			e.Errorf("it took %v", took)
		}
	})
}
