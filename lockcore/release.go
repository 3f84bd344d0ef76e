package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// release releases a lease that Unlock has just ended. It returns how many leases the
// owner has left.
func (c *Client) release(ctx context.Context, l *Lease) (int64, error) {
	first := ctx
	if ctx.Err() != nil {
		// Release the lock even if the caller's context is done.
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.a.terms.detached())
		defer cancel()
	}
	began := time.Now()
	n, err := l.a.leave(first, l.a.terms.timeout())
	if err == nil {
		c.removeLease(l)
		if n <= 0 {
			return 0, opError("unlock", l.a.keys.name, ErrNotHeld, c.topology.lossOf(first, l.a))
		}
		return n - 1, nil
	}
	if !wire.MayRetryLater(err) && ctx.Err() == nil {
		c.removeLease(l)
		return 0, opError("unlock", l.a.keys.name, err)
	}
	type outcome struct {
		left int64
		err  error
	}
	done := make(chan outcome, 1)
	if !c.background(func(bg context.Context) {
		left, err := c.retryRelease(bg, l, l.a.terms.ttl-time.Since(began), errors.Is(err, ErrUnknown))
		done <- outcome{left, err}
	}) {
		return 0, opError("unlock", l.a.keys.name, ErrClosed)
	}
	select {
	case o := <-done:
		return o.left, o.err
	case <-first.Done():
		return 0, opError("unlock", l.a.keys.name, first.Err(), err, errReleasing)
	}
}

// detached returns how long a release waits for the answer if its context is done.
func (t *leaseTerms) detached() time.Duration { return min(t.ttl, 10*time.Second) }

// longer returns a context that ends some time after ctx.
func longer(ctx context.Context, by time.Duration) (late context.Context, cancel context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(by):
			end()
		case <-late.Done():
		}
	})
	return late, func() {
		stop()
		end()
	}
}

var errReleasing = errors.New("lockcore: the release continues in the background; the lock expires with its TTL at the latest")

// retryRelease sends the release until it is answered or within has passed, when the lock
// has expired. unanswered: an earlier release of the lease had no answer.
func (c *Client) retryRelease(ctx context.Context, l *Lease, within time.Duration, unanswered bool) (left int64, err error) {
	defer c.removeLease(l)
	retry := wire.NewRetry(l.a.terms.timeout(), max(within, time.Millisecond), nil)
	n := int64(0)
	err = retry.Do(ctx, wire.MayRetryLater, func() (err error) {
		n, err = l.a.leave(ctx, retry.Timeout())
		unanswered = unanswered || errors.Is(err, ErrUnknown)
		return err
	})
	switch {
	case err != nil:
		return 0, opError("unlock", l.a.keys.name, err, errors.New("lockcore: the release was not answered; the lock expires with its TTL"))
	case n > 0:
		return n - 1, nil
	case unanswered:
		return -n, nil // the unanswered release was applied
	}
	return 0, opError("unlock", l.a.keys.name, ErrNotHeld, c.topology.lossOf(ctx, l.a))
}

// removeLease removes a lease from the Client.
func (c *Client) removeLease(l *Lease) {
	cause, now := l.life.Err(), time.Duration(0)
	if errors.Is(cause, ErrLeaseExpired) {
		now = c.clock.Now() // may call the user's clock, so without the mutex
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.a.number] == l {
		c.owners.remove(l, cause, now)
	}
	delete(c.leases, l.a.number)
	c.idle.Broadcast()
}

// A grantCheck repeats a leave that granted the lock to a waiter, when the grant ends.
type grantCheck struct {
	a     *attempt
	timer *time.Timer
}

// checkLater repeats a leave after the given time. The reply to a leave that grants the lock to
// a waiter contains the time until the grant ends. If the waiter's process is frozen, this
// process then grants the lock to the next waiter, because it is known to be alive. A later
// leave of the name replaces the check, because the earlier grant was confirmed or has ended.
func (c *Client) checkLater(a *attempt, in time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	name := a.keys.name
	if former := c.checks[name]; former != nil {
		former.timer.Stop()
	}
	check := &grantCheck{a: a}
	check.timer = time.AfterFunc(in+lease.Margin(in), func() {
		c.mu.Lock()
		current := c.checks[name] == check
		if current {
			delete(c.checks, name)
		}
		c.mu.Unlock()
		if current {
			check.leave(c, c.newRetry(a.terms.timeout(), max(a.terms.ttl, tombTTL)))
		}
	})
	c.checks[name] = check
}

// passOn sends the leave now, because Close ends all checks of the Client. The server then
// notifies other processes of the end of a grant that is not confirmed yet.
func (check *grantCheck) passOn(c *Client) {
	check.leave(c, wire.NewRetry(check.a.terms.timeout(), time.Second, nil))
}

// leave sends the leave in the background.
func (check *grantCheck) leave(c *Client, retry wire.Retry) {
	c.background(func(ctx context.Context) {
		_ = retry.Do(ctx, wire.MayRetryLater, func() error {
			_, err := check.a.sendLeave(ctx, false, retry.Timeout())
			return err
		})
	})
}
