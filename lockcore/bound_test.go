package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call returns within its documented bound, in every state of the network. Nothing is
// left once the Client is closed.
//
// Caught mutants: a dial on the caller's goroutine; a request without a deadline; a try
// that may take longer than the remaining time of the call.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, everyCall, (*lockcore.Client)(nil), (*lockcore.Lease)(nil),
		(*lockcore.Mutex)(nil), (*lockcore.ReentrantMutex)(nil), (*lockcore.RWMutex)(nil))
}

// The calls of a Client of a quorum return in time, too, whichever of its servers have the fault.
func TestFault69_EveryCallToAQuorumReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBoundedOnAQuorum(t, func(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
		const lease = 3 * time.Second
		m, err := c.Mutex("orders", ttl(lease))
		testenv.Must(e, err)
		vacant, err := c.Mutex("vacant", ttl(lease))
		testenv.Must(e, err)
		another, err := c.Mutex("another", ttl(lease))
		testenv.Must(e, err)
		held, err := m.TryLock(e.Context())
		testenv.Must(e, err)
		bg := context.Background()
		const two3 = 2 * lease / 3
		add("Mutex.TryLock", two3, func() { _, _ = m.TryLock(bg) })
		add("Mutex.TryLock of a vacant lock", two3, func() { _, _ = vacant.TryLock(bg) })
		add("Mutex.Lock", lease, func() { _, _ = another.Lock(bg) })
		add("Mutex.Lock with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = m.Lock(ctx) }))
		add("Client.Do", 10*time.Second, func() {
			_ = c.Do(bg, "work", lockcore.LeaseConfig{}, func(context.Context, uint64) error { return nil })
		})
		add("Client.Inspect", 7*time.Second, func() { _, _ = c.Inspect(bg, "orders") })
		add("Client.CheckRights", 7*time.Second, func() { _ = c.CheckRights(bg, "orders", lockcore.LockMutex) })
		add("Lease.Unlock", lease, func() { _ = held.Unlock(bg) })
	})
}

// Dials never return for two minutes. That costs a few of them, also of those that ask the nodes
// of a cluster for their slots.
//
// Caught mutant: a new dialer for each of these questions.
func TestFault69_DialsThatNeverReturnAreFew(t *testing.T) {
	testenv.DialsAreLimited(t)
}

func everyCall(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	const lease = 3 * time.Second
	cfg := ttl(lease)
	m, err := c.Mutex("orders", cfg)
	testenv.Must(e, err)
	re, err := c.ReentrantMutex("re", "owner", cfg)
	testenv.Must(e, err)
	rw, err := c.RWMutex("rw", "owner", lockcore.RWConfig{Read: cfg, Write: cfg})
	testenv.Must(e, err)
	held, err := m.TryLock(e.Context())
	testenv.Must(e, err)
	writes, err := rw.TryLock(e.Context())
	testenv.Must(e, err)
	released, err := re.TryLock(e.Context())
	testenv.Must(e, err)
	bg := context.Background()
	const two3 = 2 * lease / 3
	add("Mutex.TryLock", two3, func() { _, _ = m.TryLock(bg) })
	add("ReentrantMutex.TryLock", two3, func() { _, _ = re.TryLock(bg) })
	add("RWMutex.TryRLock", two3, func() { _, _ = rw.TryRLock(bg) })
	add("RWMutex.TryLock", two3, func() { _, _ = rw.TryLock(bg) })
	add("Mutex.Lock", lease, func() { _, _ = m.Lock(bg) })
	add("Mutex.Lock with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = m.Lock(ctx) }))
	add("ReentrantMutex.Lock", lease, func() { _, _ = re.Lock(bg) })
	add("RWMutex.RLock", lease, func() { _, _ = rw.RLock(bg) })
	add("RWMutex.Lock", lease, func() { _, _ = rw.Lock(bg) })
	add("Client.Do", 10*time.Second, func() {
		_ = c.Do(bg, "work", lockcore.LeaseConfig{}, func(context.Context, uint64) error { return nil })
	})
	add("Lease.Downgrade", lease, func() { _ = writes.Downgrade(bg) })
	add("Lease.Unlock", lease, func() { _ = held.Unlock(bg) })
	add("Lease.Unlock with 1 s", time.Second, e.Within(func(ctx context.Context) { _ = writes.Unlock(ctx) }))
	add("Client.Inspect", 7*time.Second, func() { _, _ = c.Inspect(bg, "orders") })
	add("Client.CheckRights", 7*time.Second, func() { _ = c.CheckRights(bg, "orders", lockcore.LockMutex) })
	add("Client.Locks", 7*time.Second, func() { _, _ = c.Locks(bg, lockcore.ListConfig{}) })
	add("Client.Search", 7*time.Second, func() { _, _ = c.Search(bg, engine.Search{Parts: []string{"lock"}}) })
	add("Client.ForcedReleases", 7*time.Second, func() { _, _ = c.ForcedReleases(bg, "orders") })
	add("Client.ForceRelease", 7*time.Second, func() { _, _ = c.ForceRelease(bg, lockcore.Inspection{Name: "orders"}, lockcore.Operator{}) })
	add("Lease.Release with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = released.Release(ctx) }))
	add("Lease.Bind", 0, func() {
		ctx, stop := held.Bind(bg)
		stop()
		_ = ctx.Err()
	})
	for name, local := range map[string]func(){
		"Lease.Name":            func() { _ = held.Name() },
		"Lease.Token":           func() { _ = held.Token() },
		"Mutex.Name":            func() { _ = m.Name() },
		"ReentrantMutex.Name":   func() { _ = re.Name() },
		"RWMutex.Name":          func() { _ = rw.Name() },
		"Client.Process":        func() { _ = c.Process() }, // of export_test.go
		"Client.Identity":       func() { _ = c.Identity() },
		"Client.Elapsed":        func() { _ = c.Elapsed() },
		"Client.Engine":         func() { _, _ = c.Engine("other", cfg) },
		"Client.Mutex":          func() { _, _ = c.Mutex("other", cfg) },
		"Client.ReentrantMutex": func() { _, _ = c.ReentrantMutex("other", "owner", cfg) },
		"Client.RWMutex":        func() { _, _ = c.RWMutex("other", "owner", lockcore.RWConfig{}) },
	} {
		add(name, 0, local)
	}
	add("Lease.Remaining", 0, func() { _ = held.Remaining() })
	add("Lease.Context", 0, func() { _ = held.Context().Err() })
}
