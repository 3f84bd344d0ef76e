package lockcore

import (
	"context"
	"errors"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/stopping"
)

// A Mutex is a named lock that at most one lease holds at a time. It has no state of its
// own and is safe for concurrent use. Any number of Mutexes of one name, in any number of
// processes, are the same lock.
type Mutex struct {
	name *lock.Name
	kind lock.Kind // a mutex, a Semaphore, or one side of a lock with owners
}

// Mutex returns the lock of a name: 1 to 200 bytes of UTF-8 without control characters,
// spaces and braces. Names must not begin with job/ or election/. Mutex sends nothing. The
// error is a *noonlock.ConfigError.
func (c *Client) Mutex(name string, cfg LeaseConfig) (*Mutex, error) {
	return c.lock(name, c.room().Mutex(), cfg)
}

func (c *Client) lock(name string, k lock.Kind, cfg LeaseConfig) (*Mutex, error) {
	n, err := c.room().UserName(name, k, lock.LeaseConfig(cfg))
	if err != nil {
		return nil, err
	}
	return &Mutex{n, k}, nil
}

// TryLock acquires the lock if it is free and the queue is empty. Otherwise the error is
// ErrNotAcquired and a *HeldError.
//
// If no answer arrives, TryLock retries for two thirds of the TTL, at most 6 s, and then returns the
// last error. If that is ErrUnknown, the lock may have been acquired, and a background task releases it.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.tryLock(ctx, "try lock") }

func (m *Mutex) tryLock(ctx context.Context, op string) (*Lease, error) {
	return m.leaseOf(op)(m.name.TryLock(ctx, m.kind))
}

// Lock acquires the lock. If the lock is not free, Lock queues and waits until ctx ends.
// The error is then ErrNotAcquired joined with the error of ctx, and with a *HeldError if
// the holder is known. Waiters are served in order of arrival. The queue passes over a waiter up to three round trips
// before the deadline of its ctx, because a grant would arrive too late.
//
// A waiter sends one request per 1.1 TTL, or per 1.1 s if TTL is less than 1 s. The first three
// waiters, and the first waiter of each process among the first 32, send one per TTL.
//
// Lock also waits while no server can be reached, while the server loads its data, during a failover, and during
// Config.LockDelay. To limit the wait, give ctx a deadline or set LeaseConfig.Wait.
// Lock returns other errors at once, for example a wrong password. In the queue, it waits while
// the server lacks memory or replicas.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.lock(ctx, "lock") }

func (m *Mutex) lock(ctx context.Context, op string) (*Lease, error) {
	return m.leaseOf(op)(m.name.Lock(ctx, m.kind))
}

// leaseOf returns a function that turns a result of internal/lock into types of this package. op is for the error.
func (m *Mutex) leaseOf(op string) func(*lock.Lease, *lock.Held, error) (*Lease, error) {
	return func(held *lock.Lease, other *lock.Held, err error) (*Lease, error) {
		if held != nil {
			return &Lease{held: held}, nil
		}
		if other != nil {
			err = errors.Join(err, (*HeldError)(other))
		}
		return nil, lock.OpError(op, m.name.Name(), err)
	}
}

// Do acquires the mutex of a name, as Mutex.Lock does, and runs fn. The context of fn is done
// when ctx is done or the lease ends, whichever comes first. FromContext returns the lease of that context, with the
// fencing token. LeaseConfig.Wait limits the wait, and not the work. Do releases the lock after fn
// has returned, panicked or called runtime.Goexit. When ctx is done, Do waits for the answer for one
// TTL or 10 s, whichever is shorter.
//
// Do returns the error of fn, joined with the error of Lease.Unlock, which has the reason if the
// lease ended before fn returned. If the lock was not acquired, Do returns the error of Mutex.Lock and does not
// call fn.
func (c *Client) Do(ctx context.Context, name string, cfg LeaseConfig, fn func(ctx context.Context) error) (err error) {
	if fn == nil {
		return lock.Refuse("fn", "a function", "nil")
	}
	m, err := c.Mutex(name, cfg)
	if err != nil {
		return err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	work, stop := lease.Bind(ctx)
	defer func() {
		stop()
		deadline, done := stopping.New(ctx, lease.held.Detached(), 0)
		defer done()
		leaving, cancel := deadline.Context(ctx, 0)
		defer cancel()
		err = errors.Join(err, lease.Unlock(leaving))
	}()
	return fn(work)
}
