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

// A Retry tries until its time is over. Pauses separate the tries, each try has at most its
// own limit, and the last tries have the remaining time.
func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each, within = 300 * time.Millisecond, time.Second
		r := wire.NewRetry(each, within, nil)
		begun := time.Now()
		var timeouts []time.Duration
		err := r.Do(t.Context(), always, func() error {
			timeout := r.Timeout()
			timeouts = append(timeouts, timeout)
			if left := within - time.Since(begun); timeout != min(each, left) {
				t.Errorf("a try that begins with %v left may take %v", left, timeout)
			}
			time.Sleep(timeout)
			return errBusy
		})
		if took := time.Since(begun); !errors.Is(err, errBusy) || took > within {
			t.Errorf("after %v: %v", took, err)
		}
		if len(timeouts) < 3 || timeouts[0] != each || slices.Min(timeouts) == each {
			t.Errorf("the tries had %v", timeouts)
		}
	})
}

// A Retry without a limit continues until a try succeeds, with the full time for each.
func TestRetryWithoutBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n, begun := wire.NewRetry(time.Second, 0, nil), 0, time.Now()
		err := r.Do(t.Context(), always, func() error {
			if n++; r.Timeout() != time.Second {
				t.Errorf("try %d may take %v", n, r.Timeout())
			}
			if n == 100 {
				return nil
			}
			return errBusy
		})
		if took := time.Since(begun); err != nil || n != 100 || took < 10*time.Second || took > time.Minute {
			t.Errorf("%d tries in %v: %v", n, took, err)
		}
	})
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
