package wire

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A Retry repeats a request until it is answered, within a total time. The number of tries is not limited.
type Retry struct {
	each     time.Duration // timeout of one try
	deadline time.Time     // optional end of all tries
	stop     <-chan struct{}
	pauses   retry.Backoff // nil before the first pause
	cut      bool          // the timeout of the last try was shorter than each, because of deadline
	cause    error         // error of the last try that had enough time to connect
}

// NewRetry returns a Retry. each limits one try, and within limits all tries together; 0 means no limit. The Retry also
// ends, with ErrClosed, when stop is closed. stop is optional.
func NewRetry(each, within time.Duration, stop <-chan struct{}) Retry {
	r := Retry{each: each, stop: stop}
	if within > 0 {
		r.deadline = time.Now().Add(within)
	}
	return r
}

// Timeout returns the timeout of the next try.
func (r *Retry) Timeout() time.Duration {
	if r.deadline.IsZero() {
		return r.each
	}
	left := max(time.Millisecond, min(r.each, time.Until(r.deadline)))
	r.cut = left < r.each
	return left
}

// Do calls try until it succeeds, mayRetry returns false for its error, or the Retry or ctx ends. Do then returns the
// error of the last try. It is joined with the reason of the end, and with ErrUnknown if an earlier try was not
// answered.
func (r *Retry) Do(ctx context.Context, mayRetry func(error) bool, try func() error) error {
	unknown := false
	for {
		err := try()
		if err == nil {
			return nil
		}
		unknown = unknown || errors.Is(err, ErrUnknown)
		if mayRetry(err) {
			if err = r.pause(ctx, err); err == nil {
				continue
			}
		}
		if unknown && !errors.Is(err, ErrUnknown) {
			err = errors.Join(ErrUnknown, err)
		}
		return err
	}
}

// pause waits until the next try. If there is none, it returns the error of Do.
func (r *Retry) pause(ctx context.Context, err error) error {
	var late interface{ Timeout() bool }
	if (r.cut || ctx.Err() != nil) && r.cause != nil && OutcomeOf(err) == Unsent && errors.As(err, &late) && late.Timeout() {
		err = r.cause // more useful than the error of a try that had only a moment
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
	} else {
		r.cause = err
	}
	if r.pauses == nil {
		r.pauses = retry.Pauses(10*time.Millisecond, 500*time.Millisecond)
	}
	d := r.pauses.NextBackOff()
	switch {
	case ctx.Err() != nil || !r.deadline.IsZero() && time.Until(r.deadline) <= d:
		return err
	case retry.Sleep(ctx, d, r.stop):
		return nil
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(ErrClosed, err)
}

// Send sends a request until it is answered.
func (r *Retry) Send(ctx context.Context, w Wire, name string, request Request, mayRetry func(error) bool) (answer any, err error) {
	err = r.Do(ctx, mayRetry, func() error {
		answer, err = w.Send(ctx, name, request, r.Timeout())
		return err
	})
	return answer, err
}
