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
		callsOfAMutex(e, c, add)
		bg := context.Background()
		for name, refused := range map[string]func() error{
			"Client.Locks": func() error {
				_, err := c.Locks(bg, lockcore.ListConfig{})
				return err
			},
			"Client.Search": func() error {
				_, err := c.Search(bg, engine.Search{Parts: []string{"lock"}})
				return err
			},
			"Client.ForcedReleases": func() error {
				_, err := c.ForcedReleases(bg, "orders")
				return err
			},
			"Client.ForceRelease": func() error {
				_, err := c.ForceRelease(bg, lockcore.Inspection{Name: "orders"}, lockcore.Operator{})
				return err
			},
			"Client.CheckRights of a lock with owners": func() error {
				return c.CheckRights(bg, "orders", lockcore.LockReentrant)
			},
			"Client.ReentrantMutex": func() error {
				_, err := c.ReentrantMutex("other", "owner", lockcore.LeaseConfig{})
				return err
			},
			"Client.RWMutex": func() error {
				_, err := c.RWMutex("other", "owner", lockcore.RWConfig{})
				return err
			},
		} {
			add(name, 0, e.Refuses(lockcore.ErrConfig, refused))
		}
	}, (*lockcore.Client)(nil), (*lockcore.Lease)(nil), (*lockcore.Mutex)(nil))
}

// Dials never return for two minutes. That costs a few of them, also of those that ask the nodes
// of a cluster for their slots.
//
// Caught mutant: a new dialer for each of these questions.
func TestFault69_DialsThatNeverReturnAreFew(t *testing.T) {
	testenv.DialsAreLimited(t)
}

const (
	boundLease = 3 * time.Second
	boundTry   = 2 * boundLease / 3 // of a call that tries once
	boundAsk   = 7 * time.Second    // of a call that depends on no TTL
)

// release releases a lock that a call has acquired, as a server without the fault has granted it.
// Other calls wait for it.
func release(l *lockcore.Lease, err error) {
	if err == nil {
		go func() { _ = l.Unlock(context.Background()) }()
	}
}

// everyCall adds the calls of a Client of one server, or of one primary for each name.
func everyCall(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	callsOfAMutex(e, c, add)
	bg, cfg := context.Background(), ttl(boundLease)
	re, err := c.ReentrantMutex("re", "owner", cfg)
	testenv.Must(e, err)
	rw, err := c.RWMutex("rw", "owner", lockcore.RWConfig{Read: cfg, Write: cfg})
	testenv.Must(e, err)
	writes, err := rw.TryLock(e.Context())
	testenv.Must(e, err)
	released, err := re.TryLock(e.Context())
	testenv.Must(e, err)
	queued, err := c.Mutex("orders", cfg) // which callsOfAMutex holds
	testenv.Must(e, err)
	add("Mutex.Lock in the queue", time.Second, e.Within(func(ctx context.Context) { release(queued.Lock(ctx)) }))
	add("ReentrantMutex.TryLock", boundTry, func() { release(re.TryLock(bg)) })
	add("RWMutex.TryRLock", boundTry, func() { release(rw.TryRLock(bg)) })
	add("RWMutex.TryLock", boundTry, func() { release(rw.TryLock(bg)) })
	add("ReentrantMutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(re.Lock(ctx)) }))
	add("RWMutex.RLock", time.Second, e.Within(func(ctx context.Context) { release(rw.RLock(ctx)) }))
	add("RWMutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(rw.Lock(ctx)) }))
	add("Lease.Downgrade of a writer", boundLease, func() { _ = writes.Downgrade(bg) })
	add("Lease.Unlock of a writer with 1 s", time.Second, e.Within(func(ctx context.Context) { _ = writes.Unlock(ctx) }))
	add("Lease.Release with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = released.Release(ctx) }))
	add("Client.Locks", boundAsk, func() { _, _ = c.Locks(bg, lockcore.ListConfig{}) })
	add("Client.Search", boundAsk, func() { _, _ = c.Search(bg, engine.Search{Parts: []string{"lock"}}) })
	add("Client.ForcedReleases", boundAsk, func() { _, _ = c.ForcedReleases(bg, "orders") })
	add("Client.ForceRelease", boundAsk, func() { _, _ = c.ForceRelease(bg, lockcore.Inspection{Name: "orders"}, lockcore.Operator{}) })
	for name, local := range map[string]func(){
		"ReentrantMutex.Name":   func() { _ = re.Name() },
		"RWMutex.Name":          func() { _ = rw.Name() },
		"Client.ReentrantMutex": func() { _, _ = c.ReentrantMutex("other", "owner", cfg) },
		"Client.RWMutex":        func() { _, _ = c.RWMutex("other", "owner", lockcore.RWConfig{}) },
	} {
		add(name, 0, local)
	}
}

// callsOfAMutex adds the calls that a quorum serves, too.
func callsOfAMutex(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	bg, cfg := context.Background(), ttl(boundLease)
	mutex := func(name string) *lockcore.Mutex {
		m, err := c.Mutex(name, cfg)
		testenv.Must(e, err)
		return m
	}
	m, vacant := mutex("orders"), mutex("vacant")
	held, err := m.TryLock(e.Context())
	testenv.Must(e, err)
	released, err := mutex("released").TryLock(e.Context())
	testenv.Must(e, err)
	add("Mutex.TryLock", boundTry, func() { release(m.TryLock(bg)) })
	add("Mutex.TryLock of a vacant lock", boundTry, func() { release(vacant.TryLock(bg)) })
	add("Mutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(m.Lock(ctx)) }))
	add("Client.Do", time.Second, e.Within(func(ctx context.Context) {
		_ = c.Do(ctx, "work", lockcore.LeaseConfig{}, func(context.Context, uint64) error { return nil })
	}))
	add("Client.Inspect", boundAsk, func() { _, _ = c.Inspect(bg, "orders") })
	add("Client.CheckRights", boundAsk, func() { _ = c.CheckRights(bg, "orders", lockcore.LockMutex) })
	add("Lease.Downgrade", boundLease, func() { _ = held.Downgrade(bg) })
	add("Lease.Unlock", boundLease, func() { _ = held.Unlock(bg) })
	add("Lease.Release", boundLease, func() { _, _ = released.Release(bg) })
	add("Lease.Bind", 0, func() {
		ctx, stop := held.Bind(bg)
		stop()
		_ = ctx.Err()
	})
	for name, local := range map[string]func(){
		"Lease.Name":      func() { _ = held.Name() },
		"Lease.Token":     func() { _ = held.Token() },
		"Lease.Remaining": func() { _ = held.Remaining() },
		"Lease.Context":   func() { _ = held.Context().Err() },
		"Mutex.Name":      func() { _ = m.Name() },
		"Client.Process":  func() { _ = c.Process() }, // of export_test.go
		"Client.Identity": func() { _ = c.Identity() },
		"Client.Elapsed":  func() { _ = c.Elapsed() },
		"Client.Engine":   func() { _, _ = c.Engine("other", cfg) },
		"Client.Mutex":    func() { _, _ = c.Mutex("other", cfg) },
	} {
		add(name, 0, local)
	}
}
