package lockcore_test

import (
	"context"
	"testing"
	"time"

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
	testenv.EveryCallIsBoundedOnAQuorum(t, everyCallToAQuorum, (*lockcore.Client)(nil), (*lockcore.Lease)(nil), (*lockcore.Mutex)(nil))
}

// everyCallToAQuorum adds the calls of a Client of a quorum.
func everyCallToAQuorum(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	callsOfAMutex(e, c, add)
	for name, refused := range map[string]func(context.Context) error{
		"Client.Locks": func(ctx context.Context) error {
			_, err := c.Locks(ctx, lockcore.ListConfig{})
			return err
		},
		"Client.ForcedReleases": func(ctx context.Context) error {
			_, err := c.ForcedReleases(ctx, "orders")
			return err
		},
		"Client.ForceRelease": func(ctx context.Context) error {
			_, err := c.ForceRelease(ctx, lockcore.Inspection{Name: "orders"}, lockcore.Operator{})
			return err
		},
		"Client.ReentrantMutex": func(context.Context) error {
			_, err := c.ReentrantMutex("other", "owner", lockcore.LeaseConfig{})
			return err
		},
		"Client.RWMutex": func(context.Context) error {
			_, err := c.RWMutex("other", "owner", lockcore.RWConfig{})
			return err
		},
	} {
		add(name, 0, e.Refuses(lockcore.ErrConfig, refused))
	}
}

// Dials never return for two minutes. That costs a few of them, also of those that ask the nodes
// of a cluster for their slots.
//
// Caught mutant: a new dialer for each of these questions.
func TestFault69_DialsThatNeverReturnAreFew(t *testing.T) {
	testenv.EveryCallIsBounded(t, triesForTwoMinutes)
}

func TestFault69_DialsToAQuorumThatNeverReturnAreFew(t *testing.T) {
	testenv.EveryCallIsBoundedOnAQuorum(t, triesForTwoMinutes)
}

func triesForTwoMinutes(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	for _, name := range []string{"a", "b", "c"} { // in a cluster, they have different servers
		m, err := c.Mutex(name, ttl(boundLease))
		must(e, err)
		_, err = m.Lock(e.Context())
		must(e, err)
		add(name, 2*time.Minute+boundTry+time.Second, func(ctx context.Context) {
			for began := e.Clock(); e.Clock() < began+2*time.Minute; time.Sleep(time.Second) {
				_, _ = m.TryLock(ctx)
			}
		})
	}
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
	cfg := ttl(boundLease)
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
	add("ReentrantMutex.TryLock", boundTry, func(ctx context.Context) { release(re.TryLock(ctx)) })
	add("RWMutex.TryRLock", boundTry, func(ctx context.Context) { release(rw.TryRLock(ctx)) })
	add("RWMutex.TryLock", boundTry, func(ctx context.Context) { release(rw.TryLock(ctx)) })
	add("ReentrantMutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(re.Lock(ctx)) }))
	add("RWMutex.RLock", time.Second, e.Within(func(ctx context.Context) { release(rw.RLock(ctx)) }))
	add("RWMutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(rw.Lock(ctx)) }))
	add("Lease.Downgrade of a writer", boundLease, func(ctx context.Context) { _ = writes.Downgrade(ctx) })
	add("Lease.Unlock of a writer with 1 s", time.Second, e.Within(func(ctx context.Context) { _ = writes.Unlock(ctx) }))
	add("Lease.Release with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = released.Release(ctx) }))
	add("Client.Locks", boundAsk, func(ctx context.Context) { _, _ = c.Locks(ctx, lockcore.ListConfig{}) })
	add("Client.ForcedReleases", boundAsk, func(ctx context.Context) { _, _ = c.ForcedReleases(ctx, "orders") })
	add("Client.ForceRelease", boundAsk, func(ctx context.Context) {
		_, _ = c.ForceRelease(ctx, lockcore.Inspection{Name: "orders"}, lockcore.Operator{})
	})
	for name, local := range map[string]func(){
		"ReentrantMutex.Name":   func() { _ = re.Name() },
		"RWMutex.Name":          func() { _ = rw.Name() },
		"Client.ReentrantMutex": func() { _, _ = c.ReentrantMutex("other", "owner", cfg) },
		"Client.RWMutex":        func() { _, _ = c.RWMutex("other", "owner", lockcore.RWConfig{}) },
	} {
		add(name, 0, func(context.Context) { local() })
	}
}

// callsOfAMutex adds the calls that a quorum serves, too.
func callsOfAMutex(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	cfg := ttl(boundLease)
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
	add("Mutex.TryLock", boundTry, func(ctx context.Context) { release(m.TryLock(ctx)) })
	add("Mutex.TryLock of a vacant lock", boundTry, func(ctx context.Context) { release(vacant.TryLock(ctx)) })
	add("Mutex.Lock", time.Second, e.Within(func(ctx context.Context) { release(m.Lock(ctx)) }))
	add("Client.Do", time.Second, e.Within(func(ctx context.Context) {
		_ = c.Do(ctx, "work", lockcore.LeaseConfig{}, func(context.Context, uint64) error { return nil })
	}))
	add("Client.Inspect", boundAsk, func(ctx context.Context) { _, _ = c.Inspect(ctx, "orders") })
	add("Lease.Downgrade", boundLease, func(ctx context.Context) { _ = held.Downgrade(ctx) })
	add("Lease.Unlock", boundLease, func(ctx context.Context) { _ = held.Unlock(ctx) })
	add("Lease.Release", boundLease, func(ctx context.Context) { _, _ = released.Release(ctx) })
	add("Lease.Bind", 0, func(ctx context.Context) {
		bound, stop := held.Bind(ctx)
		stop()
		_ = bound.Err()
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
		"Client.Mutex":    func() { _, _ = c.Mutex("other", cfg) },
	} {
		add(name, 0, func(context.Context) { local() })
	}
}
