package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/noonlock/noonlock/internal/wire"
)

// A retry is how a request is repeated until it is answered: for so long in all,
// whatever the tries come to.
type retry struct {
	c     *Client
	each  time.Duration // one try may take so long
	until time.Time     // zero: until the caller's context ends
	wait  *backoff.ExponentialBackOff
	cut   bool  // the last try had less than each, as the retry ends
	why   error // of the last one that was not cut off for want of a connection

	// behind: it is not ended by Close, which waits for it.
	behind bool
}

// newRetry makes a retry. Its tries take within in all, 0: for ever.
func (c *Client) newRetry(each, within time.Duration) *retry {
	r := &retry{c: c, each: each, wait: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond),
		backoff.WithMaxElapsedTime(0))}
	if within > 0 {
		r.until = time.Now().Add(within)
	}
	return r
}

// timeout is how long the next try may take.
func (r *retry) timeout() time.Duration {
	if r.until.IsZero() {
		return r.each
	}
	left := max(time.Millisecond, min(r.each, time.Until(r.until)))
	r.cut = left < r.each
	return left
}

// again waits until it is time for another try. If there is none, it returns why: the
// error of the last one, joined with what ended the wait.
func (r *retry) again(ctx context.Context, err error) error {
	var late interface{ Timeout() bool }
	if r.cut && r.why != nil && wire.IsUnsent(err) && errors.As(err, &late) && late.Timeout() {
		err = r.why // a try of the last millisecond knows nothing better
	} else {
		r.why = err
	}
	pause := r.wait.NextBackOff()
	if ctx.Err() != nil || !r.until.IsZero() && time.Until(r.until) <= pause {
		return err
	}
	if r.behind {
		if !sleep(ctx, pause) {
			return errors.Join(ctx.Err(), err)
		}
		return nil
	}
	if stop := r.c.pause(ctx, pause); stop != nil {
		return errors.Join(stop, err)
	}
	return nil
}

// insist asks until there is an answer, ctx ends, or within is over.
func (c *Client) insist(ctx context.Context, req wire.Request, each, within time.Duration) (any, error) {
	return c.newRetry(each, within).do(ctx, req, wire.MayRetry)
}

// do asks until there is an answer, for as long as the retry lasts.
func (r *retry) do(ctx context.Context, req wire.Request, worthIt func(error) bool) (any, error) {
	unknown := false
	for {
		answer, err := r.c.disp.Do(ctx, req, r.timeout())
		if err == nil {
			return answer, nil
		}
		unknown = unknown || errors.Is(err, ErrUnknown)
		if worthIt(err) {
			if err = r.again(ctx, err); err == nil {
				continue
			}
		}
		if unknown && !errors.Is(err, ErrUnknown) {
			err = errors.Join(ErrUnknown, err) // an earlier request had no answer
		}
		return nil, err
	}
}
