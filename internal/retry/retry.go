// Package retry provides the pauses between tries, and a sleep that can be interrupted.
// All retry loops of this module use it.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Sleep waits for d. It returns early if ctx ends, or if stop is closed or receives a
// value; stop may be nil. It reports whether it slept for all of d.
func Sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}

// A Signal wakes the goroutine that receives from it. It may be the argument stop of Sleep. It has room for one value.
type Signal chan struct{}

// NewSignal returns a Signal without a value.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver, at once or when it receives next.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// A Backoff returns the pauses between tries, and starts again after Reset.
type Backoff = backoff.BackOff

// Pauses returns pauses for requests to a server: they grow by half from first to longest,
// each up to 50 % longer or shorter. They never run out.
func Pauses(first, longest time.Duration) Backoff { return Growing(first, longest, 1.5, 0.5) }

// Growing is Pauses with another factor than 1.5 and another jitter than 0.5.
func Growing(first, longest time.Duration, factor, jitter float64) Backoff {
	return backoff.NewExponentialBackOff( // with MaxElapsedTime 0, pauses never run out
		backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest), backoff.WithMaxElapsedTime(0),
		backoff.WithMultiplier(factor), backoff.WithRandomizationFactor(jitter))
}

// Doubling returns pauses for work that failed: they double up to longest, each up to 10 % longer or shorter.
func Doubling(first, longest time.Duration) Backoff { return Growing(first, longest, 2, 0.1) }
