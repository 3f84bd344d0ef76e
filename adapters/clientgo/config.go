package clientgo

import (
	"cmp"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
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

	// EventRecorder receives "<identity> became leader" and "<identity> stopped leading", about a
	// Lease with the lock's name in the namespace "default", which need not exist. By default there
	// are no events.
	EventRecorder resourcelock.EventRecorder
}

const (
	defaultTimeout = 400 * time.Millisecond
	minTimeout     = 10 * time.Millisecond
	maxTimeout     = time.Minute

	// retain is how long the record is kept after its lease has expired.
	retain    = 7 * 24 * time.Hour
	maxLease  = 365 * 24 * 60 * 60 // s
	maxRecord = 64 << 10
)

// NewLock returns the lock of a name: 1 to 191 bytes of UTF-8 without control characters,
// spaces and braces, such as "namespace/name". All candidates of an election use the same
// name, each with its own Lock. NewLock sends nothing. An error is a *noonlock.ConfigError.
//
// The client must stay open while the lock is used. Closing the client does not release the
// lock.
func NewLock(client *lockcore.Client, name string, cfg Config) (*Lock, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	if rule := input.Fault(name, 200-len(cas.Names), true); rule != "" {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "name", Value: input.Quote(name), Rule: rule}
	}
	identity := cmp.Or(cfg.Identity, client.Identity())
	if rule := input.Fault(identity, 200, false); rule != "" {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "Config.Identity", Value: input.Quote(identity), Rule: rule}
	}
	timeout := cmp.Or(cfg.RequestTimeout, defaultTimeout)
	if timeout < minTimeout || timeout > maxTimeout {
		return nil, &noonlock.ConfigError{Package: "clientgo", Field: "Config.RequestTimeout", Value: cfg.RequestTimeout.String(), Rule: "0 (400ms) or from 10ms to 1m"}
	}
	record, err := cas.New(client, name, timeout)
	if err != nil {
		return nil, err
	}
	l := &Lock{
		name: name, identity: identity, record: record, recorder: cfg.EventRecorder,
		elapsed: lock.Of(client).Elapsed, ended: lockcore.ErrNotHeld, bound: map[*boundContext]struct{}{},
	}
	l.timer = time.AfterFunc(time.Hour, l.check)
	l.timer.Stop() // until the first Bind
	return l, nil
}
