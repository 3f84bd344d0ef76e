package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A lease with a TTL of 200 ms or more outlives an outage of 0.62 TTL of every kind, whenever
// it begins. A lease does not outlive an outage that begins right before a renewal and lasts
// longer than the remaining validity.
//
// Caught mutants: a try of a third of the TTL, whatever is left; a pause of a twelfth of
// the TTL after a failure; one dial of a connection at a time.
func TestFault72_OutageTolerance(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		for _, given := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 0, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s, TTL %v", name, given), func(t *testing.T) {
				t.Parallel()
				full := given
				if full == 0 {
					full = 10 * time.Second // the default
				}
				renew := full / 3
				tolerated := full * 62 / 100
				for _, before := range []time.Duration{time.Millisecond, renew / 20, renew / 4, renew / 2, renew * 3 / 4, renew - time.Millisecond} {
					if !outlives(t, outage, given, 2*renew-before, tolerated) {
						t.Errorf("the lease was lost in an outage of %v that began %v before a renewal", tolerated, before)
					}
				}
				tooLong := full - renew - time.Millisecond
				if outlives(t, outage, given, 2*renew-time.Millisecond, tooLong) {
					t.Errorf("the lease outlived an outage of %v", tooLong)
				}
			})
		}
	}
}

// Lock waits through an outage that has begun before its first request, until ctx ends. The Client is
// new, or its subscription is up, so that Lock queues at once.
//
// Caught mutants: before it is queued, a waiter has only one TTL; a waiter that joins has only one TTL.
func TestFault72_LockDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, warm %v", name, warm), func(t *testing.T) {
				inBubble(t, func(e *env) {
					o := outage(e.Env)
					c := e.ClientWith(o.Options, lockcore.Config{})
					m := e.mutex(c, "orders", ttl(time.Second))
					if warm {
						e.subscribes(c, m.Name())
					}
					o.Begin()
					go func() {
						time.Sleep(20 * time.Second)
						o.End()
					}()
					patient, cancel := context.WithTimeout(e.Context(), 10*time.Second)
					defer cancel()
					_, err := m.Lock(patient)
					mustIs(e, err, context.DeadlineExceeded)
					lease, err := m.Lock(e.Context())
					must(e, err)
					e.unlock(lease)
				})
			})
		}
	}
}

// subscribes makes the subscription of a Client to the messages about a name.
func (e *env) subscribes(c *lockcore.Client, name string) {
	e.Helper()
	held := e.try(e.mutex(c, name, ttl(20*time.Second)))
	waiter := e.queued(e.mutex(c, name, ttl(20*time.Second)))
	e.unlock(held)
	e.unlock(waiter.granted())
}

// The primary was just killed, and no replica is promoted. A Lock of a Client that was in use waits
// until its context ends. Nothing was sent, so its error is not "unknown". The next Lock waits until
// a replica is promoted.
func TestFault72_LockWhileThePrimaryIsDead(t *testing.T) {
	onReplicated(t, func(r *replicated) {
		c := r.client(lockcore.Config{Identity: "waiter"})
		m := r.mutex(c, firstName, ttl(300*time.Millisecond))
		r.subscribes(c, firstName)
		r.primary.Kill()
		patient, cancel := context.WithTimeout(r.Context(), time.Second) // a cluster needs two for a failover
		defer cancel()
		_, err := m.Lock(patient)
		mustIs(r, err, context.DeadlineExceeded, lockcore.ErrNotAcquired)
		mustNotBe(r, err, lockcore.ErrUnknown)
		waiter := r.goLock(m)
		r.promoted()
		r.unlock(waiter.granted())
	})
}

// outlives reports whether a lease outlives an outage that begins at the given time.
func outlives(t *testing.T, outage func(*testenv.Env) *testenv.Outage, ttl, at, lasts time.Duration) (yes bool) {
	t.Helper()
	inBubble(t, func(e *env) {
		o := outage(e.Env)
		lease := e.try(e.mutex(e.ClientWith(o.Options, lockcore.Config{}), "orders", lockcore.LeaseConfig{TTL: ttl}))
		e.Pass(at)
		o.Last(lasts)
		e.Pass(max(3*time.Second, ttl))
		if yes = lease.Context().Err() == nil; yes {
			e.unlock(lease)
		}
		o.Faults.Heal()
	})
	return yes
}
