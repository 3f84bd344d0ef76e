package wire

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A Retry repeats a request until it is answered, within a total time. The number of tries is
// not limited.
type Retry struct {
	each  time.Duration // the timeout of one try
	until time.Time     // zero: until the caller's context ends
	stop  <-chan struct{}
	wait  retry.Backoff // nil before the first pause
	cut   bool          // the last try had less time than each, because the Retry ends
	why   error         // of the last try that had enough time to connect
}

// NewRetry returns a Retry. A try may take each, and all tries together within; 0 means no
// limit. The Retry also ends, with ErrClosed, when stop is closed. stop may be nil.
func NewRetry(each, within time.Duration, stop <-chan struct{}) Retry {
	r := Retry{each: each, stop: stop}
	if within > 0 {
		r.until = time.Now().Add(within)
	}
	return r
}

// Timeout returns the timeout of the next try.
func (r *Retry) Timeout() time.Duration {
	if r.until.IsZero() {
		return r.each
	}
	left := max(time.Millisecond, min(r.each, time.Until(r.until)))
	r.cut = left < r.each
	return left
}

// Do calls try until it succeeds, its error is not worth another try, or the Retry or ctx
// ends. The error is then that of the last try, joined with what ended the wait, and with
// ErrUnknown if an earlier try was not answered.
func (r *Retry) Do(ctx context.Context, worthIt func(error) bool, try func() error) error {
	unknown := false
	for {
		err := try()
		if err == nil {
			return nil
		}
		unknown = unknown || errors.Is(err, ErrUnknown)
		if worthIt(err) {
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

// pause waits until it is time for another try. If there is no other try, it returns the
// error of Do.
func (r *Retry) pause(ctx context.Context, err error) error {
	var late interface{ Timeout() bool }
	if (r.cut || ctx.Err() != nil) && r.why != nil && OutcomeOf(err) == Unsent && errors.As(err, &late) && late.Timeout() {
		err = r.why // more useful than the error of a try that had only a moment
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
	} else {
		r.why = err
	}
	if r.wait == nil {
		r.wait = retry.Pauses(10*time.Millisecond, 500*time.Millisecond)
	}
	d := r.wait.NextBackOff()
	switch {
	case ctx.Err() != nil || !r.until.IsZero() && time.Until(r.until) <= d:
		return err
	case retry.Sleep(ctx, d, r.stop):
		return nil
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	}
	return errors.Join(ErrClosed, err)
}

// Send sends a request until it is answered.
func (r *Retry) Send(ctx context.Context, w Wire, name string, request Request, worthIt func(error) bool) (answer any, err error) {
	err = r.Do(ctx, worthIt, func() error {
		answer, err = w.Send(ctx, name, request, r.Timeout())
		return err
	})
	return answer, err
}
