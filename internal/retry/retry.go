// Package retry has what all loops of this module share that try again: the pauses
// between tries, and a sleep that can be cut short.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Sleep waits, unless ctx ends or stop is closed or receives before; a nil stop never
// does. It reports whether it waited to the end.
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

// Pauses grow from first to longest, with jitter, and never end.
func Pauses(first, longest time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest), backoff.WithMaxElapsedTime(0))
}
