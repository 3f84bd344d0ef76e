package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound, in every state of the network. Nothing is left once the Client is
// closed.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, everyCall)
}

// The calls of a Client of a quorum return in time, too, whichever of its servers have the fault.
func TestFault69_EveryCallToAQuorumReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, true, callsOfAMutex)
}

// So do the first calls of a Client, which has not heard of the servers yet.
func TestFault69_FirstCallsToAQuorumReturnInTime(t *testing.T) {
	testenv.FirstCallsAreBounded(t, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		cfg := lockcore.LeaseConfig{TTL: ttl}
		m := call(c.Mutex("orders", cfg)).Must(e)
		add("Mutex.TryLock", func(ctx context.Context) { release(m.TryLock(ctx)) })
		add("Mutex.Lock", func(ctx context.Context) { release(m.Lock(ctx)) })
		add("Client.Do", func(ctx context.Context) {
			_ = c.Do(ctx, "work", cfg, func(context.Context) error { return nil })
		})
		add("Client.Inspect", func(ctx context.Context) { _, _ = c.Inspect(ctx, "orders") })
		add("Client.Close with 1 s", func(ctx context.Context) { _ = c.Close(ctx) })
	})
}

// Dials never return for two minutes. That costs a few of them, also of those that ask the nodes of a cluster for
// their slots.
func TestFault69_DialsThatNeverReturnAreFew(t *testing.T) {
	testenv.DialsAreFew(t, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		for _, name := range []string{"a", "b", "c"} { // in a cluster, they have different servers
			m := call(c.Mutex(name, lockcore.LeaseConfig{TTL: ttl})).Must(e)
			call(m.Lock(e.Context())).Must(e)
			add(name, func(ctx context.Context) {
				for began := e.Clock(); e.Clock() < began+2*time.Minute; time.Sleep(time.Second) {
					_, _ = m.TryLock(ctx)
				}
			})
		}
	})
}

// release releases a lock that a call has acquired, as a server without the fault has granted it. Other calls wait
// for it.
func release(l *lockcore.Lease, err error) {
	if err == nil {
		go func() { _ = l.Unlock(context.Background()) }()
	}
}

// everyCall adds the calls of a Client of one server, or of one primary for each name.
func everyCall(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
	callsOfAMutex(e, c, ttl, add)
	cfg := lockcore.LeaseConfig{TTL: ttl}
	re := call(c.ReentrantMutex("re", "owner", cfg)).Must(e)
	rw := call(c.RWMutex("rw", "owner", cfg)).Must(e)
	writes := call(rw.TryLock(e.Context())).Must(e)
	wrote := call(rw.TryLock(e.Context())).Must(e)
	queued, err := c.Mutex("orders", cfg) // which callsOfAMutex holds
	testenv.Must(e, err)
	add("Mutex.Lock in the queue", func(ctx context.Context) { release(queued.Lock(ctx)) })
	add("ReentrantMutex.TryLock", func(ctx context.Context) { release(re.TryLock(ctx)) })
	add("RWMutex.TryRLock", func(ctx context.Context) { release(rw.TryRLock(ctx)) })
	add("RWMutex.TryLock", func(ctx context.Context) { release(rw.TryLock(ctx)) })
	add("ReentrantMutex.Lock", func(ctx context.Context) { release(re.Lock(ctx)) })
	add("RWMutex.RLock", func(ctx context.Context) { release(rw.RLock(ctx)) })
	add("RWMutex.Lock", func(ctx context.Context) { release(rw.Lock(ctx)) })
	add("RWMutex.Downgrade", func(ctx context.Context) { _ = rw.Downgrade(ctx, writes) })
	sem := call(c.Semaphore("sem", 1, cfg)).Must(e)
	add("Semaphore.TryAcquire", func(ctx context.Context) { release(sem.TryAcquire(ctx)) })
	add("Semaphore.Acquire", func(ctx context.Context) { release(sem.Acquire(ctx)) })
	add("Semaphore.Resize", func(ctx context.Context) { _ = sem.Resize(ctx, 1) })
	add("Lease.Unlock of a writer with 1 s", func(ctx context.Context) { _ = wrote.Unlock(ctx) })
}

// callsOfAMutex adds the calls that a quorum serves or refuses.
func callsOfAMutex(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
	cfg := lockcore.LeaseConfig{TTL: ttl}
	mutex := func(name string) *lockcore.Mutex {
		return call(c.Mutex(name, cfg)).Must(e)
	}
	m, vacant := mutex("orders"), mutex("vacant")
	held := call(m.TryLock(e.Context())).Must(e)
	add("Mutex.TryLock", func(ctx context.Context) { release(m.TryLock(ctx)) })
	add("Mutex.TryLock of a vacant lock", func(ctx context.Context) { release(vacant.TryLock(ctx)) })
	add("Mutex.Lock", func(ctx context.Context) { release(m.Lock(ctx)) })
	add("Client.Do", func(ctx context.Context) {
		_ = c.Do(ctx, "work", cfg, func(context.Context) error { return nil })
	})
	add("Client.Inspect", func(ctx context.Context) { _, _ = c.Inspect(ctx, "orders") })
	add("Lease.Unlock", func(ctx context.Context) { _ = held.Unlock(ctx) })
	add("Lease.Check", func(context.Context) { _ = held.Check() })
	add("WithOperator", func(ctx context.Context) { _ = lockcore.WithOperator(ctx, lockcore.Operator{}) })
	add("FromContext", func(context.Context) { _ = lockcore.FromContext(held.Context()) })
	add("Lease.Bind", func(ctx context.Context) {
		bound, stop := held.Bind(ctx)
		stop()
		_ = bound.Err()
	})
	add("Client.Mutex", func(context.Context) { _, _ = c.Mutex("other", cfg) })
	add("Locks", func(ctx context.Context) { _, _ = lockcore.Locks(ctx, c, nil) })
	add("Client.ForcedReleases", func(ctx context.Context) { _, _ = c.ForcedReleases(ctx, "orders") })
	add("Client.ForceRelease", func(ctx context.Context) {
		_, _ = c.ForceRelease(ctx, lockcore.Inspection{Name: "orders"})
	})
	add("Client.ReentrantMutex", func(context.Context) { _, _ = c.ReentrantMutex("other", "owner", cfg) })
	add("Client.Semaphore", func(context.Context) { _, _ = c.Semaphore("other", 1, cfg) })
	add("Client.RWMutex", func(context.Context) { _, _ = c.RWMutex("other", "owner", lockcore.LeaseConfig{}) })
}
