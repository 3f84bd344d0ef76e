package singleton

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// DaemonConfig configures a DaemonRunner. All replicas should use the same. With the zero value a
// function that returns is restarted after one second, then after two, four and so on, up
// to a minute.
type DaemonConfig struct {
	// TTL of the lease: how long the other replicas wait before they take over from
	// one that died. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// Backoff is the pause before the function is restarted on this replica after it has
	// returned or panicked. It doubles each time, up to MaxBackoff, and is randomized by
	// ±10 %. Default one second.
	Backoff time.Duration

	// MaxBackoff is the longest pause. Default one minute, or Backoff if that is
	// longer. After the function has run for MaxBackoff, the next pause is Backoff again.
	MaxBackoff time.Duration

	// HandOverAfter is the number of consecutive early ends of the function on one replica
	// after which the lease passes to the next replica in the queue, as the fault may be
	// local. This replica campaigns again after its pause. Default 3; negative: never.
	HandOverAfter int

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if the function returns when its context is
	// done. Run waits for a function that takes longer, and then has a fifth of
	// ShutdownTimeout to release the lease. Default 10 s.
	ShutdownTimeout time.Duration
}

const (
	defaultDaemonBackoff    = time.Second
	defaultDaemonMaxBackoff = time.Minute
	defaultHandOverAfter    = 3
)

// A DaemonRunner keeps one long-running function running on one of many replicas. The other
// replicas wait in a queue and do not poll.
//
// The function runs under a lease. Its context is done, with a cause, before another
// replica may start it. If its replica dies, the function runs again within TTL plus a
// round trip; after a clean shutdown, at once. The lease is released only after the
// function has returned.
//
// A DaemonRunner does not guarantee that a function which ignores its context has stopped when
// the lease has ended. Two replicas may then run it. Check reports that. A resource that
// refuses smaller fencing tokens accepts only the newer one.
//
// The lease is that of the lock "job/daemon/<name>". Applications cannot create a lock of
// that name.
type DaemonRunner struct {
	name string
	do   func(ctx context.Context) error
	cfg  DaemonConfig
	lock *lock.Name
	log  logr.Logger

	metrics *daemonMetrics
	ready   readiness.State
	gate    stopping.Gate
	work    underway
}

// NewDaemonRunner returns a DaemonRunner. Its name follows the rules of a lock's name and has at most
// 193 bytes. NewDaemonRunner sends no request. The error is a *noonlock.ConfigError, or wraps an
// error of the Client's Registerer.
//
// lockcore.FromContext of the context of work returns the lease, whose fencing token is greater than every earlier
// one. A restart of work under the same lease has the same token. The context is done when Run's context ends or
// the lease ends; then context.Cause is
// lockcore.ErrLeaseLost, lockcore.ErrLeaseExpired or lockcore.ErrClosed. Until Run's
// context ends, work is restarted whenever it returns, even with nil. For work that
// ends, use Once.
func NewDaemonRunner(client *lockcore.Client, name string, work func(ctx context.Context) error, cfg DaemonConfig) (*DaemonRunner, error) {
	if work == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	n, err := daemonLock(client, name, &lock.LeaseConfig{TTL: cfg.TTL})
	if err != nil {
		return nil, err
	}
	if cfg, err = cfg.complete(); err != nil {
		return nil, err
	}
	n.Client().Expect("mutex")
	m, err := newDaemonMetrics(n.Client().Metrics(), name)
	if err != nil {
		return nil, err
	}
	return &DaemonRunner{name: name, do: work, cfg: cfg, lock: n, log: n.Client().Logger().WithValues("daemon", name), metrics: m}, nil
}

func (cfg DaemonConfig) complete() (DaemonConfig, error) {
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Backoff = cmp.Or(cfg.Backoff, defaultDaemonBackoff)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, max(defaultDaemonMaxBackoff, cfg.Backoff))
	cfg.HandOverAfter = cmp.Or(cfg.HandOverAfter, defaultHandOverAfter)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, defaultShutdown)
	refused := func(field string, value time.Duration, rule string) error {
		return &noonlock.ConfigError{Package: "singleton", Field: "DaemonConfig." + field, Value: value.String(), Rule: rule}
	}
	switch {
	case cfg.Backoff < time.Millisecond:
		return cfg, refused("Backoff", cfg.Backoff, "0 (1s) or at least 1ms")
	case cfg.MaxBackoff < cfg.Backoff:
		return cfg, refused("MaxBackoff", cfg.MaxBackoff, "0 (1m) or at least Backoff, "+cfg.Backoff.String())
	case cfg.ShutdownTimeout < 0:
		return cfg, refused("ShutdownTimeout", cfg.ShutdownTimeout, "0 (10s) or positive")
	}
	return cfg, nil
}

// Check returns an error while the function still runs although its lease ended longer than
// tolerance ago, so that another replica may run it too. The error matches ErrOverrun and
// the cause, until the function returns. After the end of Run's context Check returns nil:
// the lease is renewed until the function has returned. Check sends no request. It is meant
// for a liveness probe.
func (s *DaemonRunner) Check(tolerance time.Duration) error {
	return s.work.overdue("daemon", tolerance)
}

// Ready returns nil if Run is running and this replica holds the lease or can campaign.
// Otherwise the error matches ErrNotReady and names the reason. A function that keeps
// returning does not make a replica unready: watch the metrics for that. Ready sends no
// request. It is meant for a readiness probe.
func (s *DaemonRunner) Ready() error {
	if err := s.ready.Err(); err != nil {
		return fmt.Errorf("singleton: daemon %q: %w: %w", s.name, ErrNotReady, err)
	}
	if err := s.work.overdue("daemon", 0); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}
