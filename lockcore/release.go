package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// release gives back a lease that has just been ended by choice, and answers how
// many entries its owner has left.
func (c *Client) release(ctx context.Context, l *Lease) (int64, error) {
	first := ctx
	if ctx.Err() != nil {
		// Asked to release with a context that is over: do it all the same.
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(context.WithoutCancel(ctx), min(l.a.terms.ttl, detachedWait))
		defer cancel()
	}
	began := time.Now()
	n, err := l.a.leave(first, l.a.terms.timeout())
	if err == nil {
		c.dismiss(l)
		if n <= 0 {
			return 0, opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, ErrLeaseLost)
		}
		return n - 1, nil
	}
	if !wire.MayRetryLater(err) && ctx.Err() == nil {
		c.dismiss(l)
		return 0, opError("lockcore: unlock", l.a.keys.name, err)
	}
	type outcome struct {
		left int64
		err  error
	}
	done := make(chan outcome, 1)
	if !c.background(func(bg context.Context) {
		left, err := c.giveBack(bg, l, l.a.terms.ttl-time.Since(began), errors.Is(err, ErrUnknown))
		done <- outcome{left, err}
	}) {
		return 0, opError("lockcore: unlock", l.a.keys.name, ErrClosed)
	}
	select {
	case o := <-done:
		return o.left, o.err
	case <-first.Done():
		return 0, opError("lockcore: unlock", l.a.keys.name, first.Err(), err, errGoesOn)
	}
}

// detachedWait is how long an Unlock whose context is over waits for the answer.
const detachedWait = 10 * time.Second

var errGoesOn = errors.New("lockcore: the release goes on behind; at worst the lock ends with its TTL")

// giveBack releases until that is answered, or within is over, when the lock has ended
// by itself. asked: a release before this one has no answer.
func (c *Client) giveBack(ctx context.Context, l *Lease, within time.Duration, asked bool) (left int64, err error) {
	defer c.dismiss(l)
	retry := wire.NewRetry(l.a.terms.timeout(), max(within, time.Millisecond), nil)
	n := int64(0)
	err = retry.Do(ctx, wire.MayRetryLater, func() (err error) {
		n, err = l.a.leave(ctx, retry.Timeout())
		asked = asked || errors.Is(err, ErrUnknown)
		return err
	})
	switch {
	case err != nil:
		return 0, opError("lockcore: unlock", l.a.keys.name, err, errors.New("lockcore: the release was not answered; the lock ends with its TTL"))
	case n > 0:
		return n - 1, nil
	case asked:
		return -n, nil // by the release that had no answer
	}
	return 0, opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, ErrLeaseLost)
}

// dismiss forgets a lease.
func (c *Client) dismiss(l *Lease) {
	cause, now := l.life.Err(), c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.a.number] == l {
		c.owners.over(l, cause, now)
	}
	delete(c.leases, l.a.number)
	c.idle.Broadcast()
}
