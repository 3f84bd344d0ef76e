package clientgo

import (
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Config configures a Lock. Its zero value is valid.
type Config struct {
	// Identity is the name of this candidate and must be unique, as client-go requires. It
	// has up to 200 bytes without control characters. The default is the Client's identity,
	// which defaults to the host name and a random suffix.
	Identity string

	// RequestTimeout is how long one request may stay unanswered before it is retried. A
	// call returns after three times this duration, or when its context ends. From 10 ms to
	// 1 minute. The default is 400 ms. With ReleaseOnCancel, RetryPeriod + RenewDeadline +
	// 6 RequestTimeouts should be less than LeaseDuration; see the package comment.
	RequestTimeout time.Duration

	// EventRecorder receives "<identity> became leader" and "<identity> stopped leading", about a Lease with the
	// lock's name in the namespace "default", which need not exist. By default there are no events.
	EventRecorder resourcelock.EventRecorder
}

const (
	// retain is how long the record is kept after its lease has expired.
	retain    = 7 * 24 * time.Hour
	maxLease  = 365 * 24 * 60 * 60 // s
	maxRecord = 64 << 10
)
