package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// A Mutex is a named lock that at most one lease holds at a time. It has no state of its
// own and is safe for concurrent use. Any number of Mutexes of one name, in any number of
// processes, are the same lock.
type Mutex struct {
	c     *Client
	keys  *lockKeys
	terms *leaseTerms
	kind  queueKind // mutexKind, or the kind of a lock that is built on Mutex
}

// Mutex returns the lock of a name: 1 to 200 bytes of UTF-8 without control characters,
// spaces and braces. Names must not begin with job/ or election/. Mutex sends nothing. The
// error is a *ConfigError.
func (c *Client) Mutex(name string, cfg LeaseConfig) (*Mutex, error) {
	return c.lock(name, c.topology.kind(), cfg)
}

// lock returns a lock of a kind.
func (c *Client) lock(name string, k queueKind, cfg LeaseConfig) (*Mutex, error) {
	if err := checkUserName(name); err != nil {
		return nil, err
	}
	terms, err := c.terms(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.topology.refusal(k, terms); err != nil {
		return nil, err
	}
	terms.keepArg = millis(c.tokenRetention)
	c.metrics.kind(k.name()).queue()
	return &Mutex{c: c, keys: c.keys.lock(name), terms: terms, kind: k}, nil
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.keys.name }

// TryLock acquires the lock if it is free and the queue is empty. Otherwise the error is
// ErrNotAcquired and a *HeldError.
//
// If no answer arrives, TryLock retries for two thirds of the TTL, at least 100 ms and at
// most 6 s, and then returns the last error. If the last request was sent late in that time, it
// has another third, at most 3 s, for its answer. If that is ErrUnknown, the lock may have been
// acquired, and a background task releases it.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := m.tryLock(ctx)
	return lease, opError("try lock", m.keys.name, err)
}

func (m *Mutex) tryLock(ctx context.Context) (*Lease, error) {
	ctx = input.Context(ctx)
	start := m.c.clock.Ticks()
	lease, reply, err := m.tryOnce(ctx, 2*m.terms.timeout())
	if lease == nil && err == nil {
		err = m.heldBy(&reply)
	}
	m.c.metrics.countAcquire(m.kind.name(), m.c.clock.Ticks()-start, err)
	return lease, err
}

// tryOnce makes one attempt that does not queue. reply is its last answer.
func (m *Mutex) tryOnce(ctx context.Context, within time.Duration) (lease *Lease, reply acquireReply, err error) {
	a, err := m.newAttempt(ctx, false)
	if err != nil {
		return nil, reply, err
	}
	reply, err = a.retryAcquire(ctx, modeTry, within)
	if lease, err = a.makeLease(ctx, &reply, err); lease == nil {
		m.c.abandon(a)
	}
	return lease, reply, err
}

// heldBy returns the error that describes the holder in r. It shows the identity and the
// owner only, as the rest of the stored value is secret.
func (m *Mutex) heldBy(r *acquireReply) *HeldError {
	p, _ := parseAttempt(r.holder)
	held := &HeldError{Name: m.keys.name, Holder: p.identity, TTL: r.left}
	if k, owned := p.kind.(ownedKind); owned {
		held.Owner = k.owner
	}
	return held
}

// Lock acquires the lock. If the lock is not free, Lock queues and waits until ctx ends.
// The error is then ErrNotAcquired joined with the error of ctx, and with a *HeldError if
// the holder is known. Waiters are served in order of arrival.
//
// A waiter sends one request per 1.1 TTL, or per 1.1 s if TTL is less than 1 s. The first three
// waiters, and the first waiter of each process among the first 32, send one per TTL.
//
// Lock also waits while no server can be reached, or while the server refuses only for now, as it
// does while it loads its data, in a failover, or because of Config.LockDelay. Give ctx a deadline.
// Lock returns other errors at once, such as a wrong password. In the queue, it keeps its place while
// the server lacks memory or replicas.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := m.lock(ctx)
	return lease, opError("lock", m.keys.name, err)
}

func (m *Mutex) lock(ctx context.Context) (*Lease, error) {
	ctx = input.Context(ctx)
	start := m.c.clock.Ticks()
	lease, last, err := m.c.topology.wait(ctx, m)
	m.c.metrics.countAcquire(m.kind.name(), m.c.clock.Ticks()-start, err)
	if errors.Is(err, ErrNotAcquired) && ctx.Err() != nil && last.holder != "" {
		held := m.heldBy(&last)
		if held.TTL >= 0 {
			held.TTL = max(0, held.TTL-(m.c.clock.Now()-last.t0))
		}
		err = errors.Join(err, held)
	}
	return lease, err
}
