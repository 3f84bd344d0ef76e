package wire_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

var errBusy = errors.New("busy")

func always(error) bool { return true }

// A Retry tries until its time is over, or for ever. Pauses separate the tries, each try has at most its own limit,
// and the last tries have the remaining time.
func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	for _, within := range []time.Duration{time.Second, 0} {
		synctest.Test(t, func(t *testing.T) {
			const each = 300 * time.Millisecond
			r, begun := wire.NewRetry(each, within, nil), time.Now()
			var timeouts []time.Duration
			err := r.Do(t.Context(), always, func() error {
				want := each
				if within > 0 {
					want = min(each, within-time.Since(begun))
				}
				if timeouts = append(timeouts, r.Timeout()); r.Timeout() != want {
					t.Errorf("a try may take %v, want %v", r.Timeout(), want)
				}
				if len(timeouts) == 100 {
					return nil
				}
				time.Sleep(want)
				return errBusy
			})
			took := time.Since(begun)
			if within > 0 && (!errors.Is(err, errBusy) || took > within || len(timeouts) < 3 || slices.Min(timeouts) == each) {
				t.Errorf("after %v: %v, the tries had %v", took, err, timeouts)
			}
			if within == 0 && (err != nil || len(timeouts) != 100 || took < 100*each+10*time.Second || took > 100*each+time.Minute) {
				t.Errorf("%d tries in %v: %v", len(timeouts), took, err)
			}
		})
	}
}

// An error that another try cannot fix ends the Retry immediately. If an earlier try had no
// answer, the result is unknown.
func TestRetryEndsAtAPermanentError(t *testing.T) {
	t.Parallel()
	errRefused := errors.New("refused")
	worthIt := func(err error) bool { return !errors.Is(err, errRefused) }
	for name, errs := range map[string][]error{
		"first":          {errRefused},
		"after busy":     {errBusy, errRefused},
		"after unknown":  {wire.ErrUnknown, errBusy, errRefused},
		"unknown itself": {errors.Join(errRefused, wire.ErrUnknown)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := 0
				r := wire.NewRetry(time.Second, time.Minute, nil)
				err := r.Do(t.Context(), worthIt, func() error { n++; return errs[n-1] })
				if n != len(errs) || !errors.Is(err, errRefused) || errors.Is(err, errBusy) {
					t.Errorf("%d tries: %v", n, err)
				}
				unknown := slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, wire.ErrUnknown) })
				if errors.Is(err, wire.ErrUnknown) != unknown {
					t.Errorf("unknown is %v, want %v: %v", !unknown, unknown, err)
				}
			})
		})
	}
}

// A context or a stop that ends during a pause ends the Retry at that instant. The error
// contains the reason and the error of the last try. No other try is made.
func TestRetryEndsDuringAPause(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"canceled": context.Canceled, "stopped": wire.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop := make(chan struct{})
				n := 0
				done := make(chan error, 1)
				go func() {
					r := wire.NewRetry(time.Second, 0, stop)
					done <- r.Do(ctx, always, func() error { n++; return errBusy })
				}()
				time.Sleep(20 * time.Second)
				synctest.Wait() // in a pause, as a try takes no time
				before, at := n, time.Now()
				if name == "stopped" {
					close(stop)
				} else {
					cancel()
				}
				err := <-done
				if time.Since(at) != 0 || n != before || !errors.Is(err, want) || !errors.Is(err, errBusy) {
					t.Errorf("after %v and %d tries: %v", time.Since(at), n-before, err)
				}
			})
		})
	}
}
