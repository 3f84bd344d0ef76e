package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// release gives back a lease that has just been ended by choice.
func (c *Client) release(ctx context.Context, l *Lease) error {
	first := ctx
	if ctx.Err() != nil {
		// Asked to release with a context that is over: do it all the same.
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(context.WithoutCancel(ctx), min(l.a.terms.ttl, detachedWait))
		defer cancel()
	}
	n, err := l.a.leave(first, l.a.open.Load())
	if err == nil {
		c.dismiss(l)
		if n == 0 {
			return opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, ErrLeaseLost)
		}
		return nil
	}
	if !mayRetry(err) && !isShort(err) && ctx.Err() == nil {
		c.dismiss(l)
		return opError("lockcore: unlock", l.a.keys.name, err)
	}
	done := make(chan error, 1)
	if !c.background(func(bg context.Context) { done <- c.giveBack(bg, l, errors.Is(err, ErrUnknown)) }) {
		return opError("lockcore: unlock", l.a.keys.name, ErrClosed)
	}
	select {
	case err := <-done:
		return err
	case <-first.Done():
		return opError("lockcore: unlock", l.a.keys.name, first.Err(), err, errGoesOn)
	}
}

// detachedWait is how long an Unlock whose context is over waits for the answer.
const detachedWait = 10 * time.Second

var errGoesOn = errors.New("lockcore: the release goes on behind; at worst the lock ends with its TTL")

// giveBack releases until that is answered, or the lock has ended by itself.
// asked: a release before this one has no answer.
func (c *Client) giveBack(ctx context.Context, l *Lease, asked bool) error {
	defer c.dismiss(l)
	wait := retryBackoff(l.a.terms.ttl)
	for {
		n, err := l.a.leave(ctx, l.a.open.Load())
		if err == nil {
			if n == 0 && !asked {
				return opError("lockcore: unlock", l.a.keys.name, ErrNotHeld, ErrLeaseLost)
			}
			return nil // ours now, or by the release that had no answer
		}
		asked = asked || errors.Is(err, ErrUnknown)
		pause := wait.NextBackOff()
		if !mayRetry(err) && !isShort(err) || pause == backoff.Stop || !sleep(ctx, pause) {
			return opError("lockcore: unlock", l.a.keys.name, err, errors.New("lockcore: the release was not answered; the lock ends with its TTL"))
		}
	}
}

// dismiss forgets a lease.
func (c *Client) dismiss(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l.a.number)
	c.idle.Broadcast()
}
