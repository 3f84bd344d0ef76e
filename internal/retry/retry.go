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

// Pauses returns pauses that grow from first to longest, with jitter. They never run out.
func Pauses(first, longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest), backoff.WithMaxElapsedTime(0))
}
