package lockcore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
)

// A Lease is one acquisition of a lock. The holder may act until Context is done. A Lease
// is safe for concurrent use.
//
// A lease is valid until t0 + ValidFor, by default t0 + TTL - margin. t0 is the time of the
// local clock just before the request is sent that grants or renews the lease. No method asks
// the server whether the lease is still held, because the answer would be old when it
// arrives. Work that checks neither Context nor Remaining does not stop in time. Only a
// resource that checks the Token can then refuse it.
type Lease struct {
	c     *Client
	a     *attempt
	token uint64
	life  lease.Lease

	refused atomic.Bool // the last renewals were refused, which was logged

	mu       sync.Mutex
	unlocked bool // Unlock was called after the end
}

// hold starts the lease of an attempt that was granted.
func (c *Client) hold(ctx context.Context, a *attempt, g grant) (*Lease, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	l := &Lease{c: c, a: a, token: g.token}
	c.keeper.Begin(ctx, &l.life, g.t0, &a.terms.times, holder{l})
	delete(c.waiting, a.number)
	c.leases[a.number] = l
	c.owners.add(l)
	if len(c.owners) > 1000+2*c.ownersSwept {
		c.owners.sweep(c.clock.Now())
		c.ownersSwept = len(c.owners)
	}
	c.mu.Unlock()
	c.metrics.kind(a.kind.name()).held.Inc()
	return l, nil
}

// holder implements lease.Holder for a Lease.
type holder struct{ *Lease }

// Lost is called when the validity of the lease has ended.
func (h holder) Lost(cause error) {
	h.notHeld()
	h.c.noteLoss(h.Lease, cause)
}

// noteLoss logs and counts a lease that ended without Unlock or Close. It does not release
// the lock of a lease that expired here: the work has the rest of the server's TTL to stop.
func (c *Client) noteLoss(l *Lease, cause error) {
	c.metrics.countLoss(cause)
	about := []any{"name", l.a.keys.name, "kind", l.a.kind.name(), "token", l.token}
	if errors.Is(cause, ErrMaxHold) {
		c.log.Info("lease ended by MaxHold", about...)
	} else {
		c.log.Error(cause, "lease lost", about...)
	}
	if errors.Is(cause, ErrLeaseLost) && l.a.unanswered.Load() {
		// An acquire in flight must not take the lock again.
		c.background(func(ctx context.Context) { c.withdraw(ctx, l.a) })
	}
	c.removeLease(l)
}

// Token returns the fencing token that the lease was granted. It is greater than the
// tokens of all earlier leases of the name; overlapping leases of one owner share a token.
// Pass it to the resource, which must refuse a token smaller than the greatest it has
// seen. A token does not change during the lease.
func (l *Lease) Token() uint64 { return l.token }

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.a.keys.name }

// Remaining returns how long the lease stays valid without another renewal. It returns 0
// if the lease has ended.
func (l *Lease) Remaining() time.Duration { return l.life.Remaining() }

// Context returns a context that is done when the lease ends. Its cause (context.Cause) is
// ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. It has the values of the
// context that the lease was acquired with, but not its deadline or cancellation.
//
// Its Err method reads the clock. So it reports the end even if the process was paused and
// no timer has run yet. Contexts derived from it do not read the clock, and are done
// shortly after it. Use Bind for a derived context that does.
func (l *Lease) Context() context.Context { return l.life.Context() }

// Bind returns a context that is done when parent is done or the lease ends, whichever
// comes first. Its Err method reads the clock, as that of Context does. Call stop when the
// work is done, to free the resources of the context.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	return l.life.Bind(input.Context(parent))
}

// end ends the lease with a cause. It returns false if the lease had ended before.
func (l *Lease) end(cause error) bool {
	if !l.life.End(cause) {
		return false
	}
	l.notHeld()
	return true
}

func (l *Lease) notHeld() { l.c.metrics.kind(l.a.kind.name()).held.Dec() }

// Unlock ends the lease and releases the lock, which the next waiter then acquires. Stop
// the work under the lease before you call Unlock: Context is done from then on.
//
// If the server does not answer, Unlock retries for up to one TTL, until the lock expires.
// If ctx ends meanwhile, Unlock returns an error and a background task continues. If ctx
// is done before the call, Unlock still sends the request. It then waits for the answer for
// one TTL or 10 s, whichever is shorter.
//
// If the lease had ended before, Unlock returns ErrNotHeld joined with the reason:
// ErrReleased, ErrLeaseLost, ErrLeaseExpired or ErrClosed. If an answer was lost and the
// retry finds no lease, the first request has released it, and Unlock returns nil.
func (l *Lease) Unlock(ctx context.Context) error {
	_, err := l.Release(ctx)
	return err
}

// Release is Unlock for owners of a ReentrantMutex or RWMutex. It also returns how many
// other leases of the name the owner has. left is 0 if there is an error.
func (l *Lease) Release(ctx context.Context) (left int, err error) {
	ctx = input.Context(ctx)
	if l.life.Err() == nil && l.end(ErrReleased) {
		n, err := l.c.release(ctx, l)
		return int(n), err
	}
	cause := l.life.Cause()
	l.mu.Lock()
	expired := errors.Is(cause, ErrLeaseExpired) && !l.unlocked
	l.unlocked = true
	l.mu.Unlock()
	if expired {
		// The work has stopped, so the rest of the TTL would only delay waiters.
		l.c.background(func(ctx context.Context) { l.c.withdraw(ctx, l.a) })
	}
	return 0, opError("unlock", l.a.keys.name, ErrNotHeld, cause)
}

// Do acquires the mutex of a name, as Mutex.Lock does, and runs fn. The context of fn is done
// when ctx is done or the lease ends, whichever comes first. Do releases the lock after fn
// has returned, panicked or called runtime.Goexit. When ctx is done, it waits for the answer for one
// TTL or 10 s, whichever is shorter.
//
// The error is that of fn, joined with that of Lease.Unlock, which has the reason if the
// lease ended before fn returned. If the lock was not acquired, fn is not called and the
// error is that of Mutex.Lock.
func (c *Client) Do(ctx context.Context, name string, cfg LeaseConfig, fn func(ctx context.Context, token uint64) error) (err error) {
	if fn == nil {
		return refuse("fn", "a function", "nil")
	}
	ctx = input.Context(ctx)
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
		leaving, cancel := longer(ctx, lease.a.terms.detached())
		defer cancel()
		err = errors.Join(err, lease.Unlock(leaving))
	}()
	return fn(work, lease.Token())
}
