package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// DaemonConfig is how a Daemon works. All replicas should use the same. The
// zero value restarts after a second, then two, four and so on up to a minute.
type DaemonConfig struct {
	// TTL of the lease: how long the others wait before they take over from a
	// replica that died. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// Backoff is the pause before the function is started again on this replica
	// after it has returned or panicked. It doubles each time, up to MaxBackoff,
	// and is spread by a tenth either way. Default one second.
	Backoff time.Duration

	// MaxBackoff is where the pause stops growing. Default one minute, or
	// Backoff if that is longer.
	MaxBackoff time.Duration

	// ResetAfter is how long the function must run to count as having worked:
	// the next pause is Backoff again. Default MaxBackoff.
	ResetAfter time.Duration

	// HandOverAfter is how often in a row the function may end too early on one
	// replica before the next in line has its turn, as the fault may lie with
	// the replica. This one stands in line again after its pause. Default 3;
	// negative: never.
	HandOverAfter int

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if the function returns when its context is
	// done. A function that takes longer is waited for, and then a fifth of
	// ShutdownTimeout is left to give the lease back. Default 10 s.
	ShutdownTimeout time.Duration

	// Identity is shown to whoever finds the daemon running elsewhere. Default:
	// the Client's.
	Identity string

	// Logger gets starts, ends and losses; its zero value discards.
	Logger logr.Logger

	// Registerer gets the metrics noonlock_daemon_…; nil: none. Daemons may share it.
	Registerer prometheus.Registerer
}

const (
	defaultDaemonBackoff    = time.Second
	defaultDaemonMaxBackoff = time.Minute
	defaultHandOverAfter    = 3

	// daemonNames keeps daemons apart from jobs.
	daemonNames = "daemon/"
)

// A Daemon is a function that is meant to run for ever, on one of the replicas
// that run the Daemon of its name. The others stand in line and do not poll.
//
// What it guarantees: the function runs under a lease, and its context is done,
// with a cause, before another replica may start it. It is running again within
// TTL plus a round trip after its replica died, and at once after a clean
// shutdown. The lease is given back only when the function has returned.
//
// What it does not: that a function which ignores its context has stopped when
// the lease has ended. Two are at work then; Check says so, and the fencing token
// tells them apart at a resource that refuses the smaller one.
//
// The lease is that of the lock "job/daemon/<name>", which no lock of the
// application can be.
type Daemon struct {
	name  string
	do    func(ctx context.Context, token uint64) error
	cfg   DaemonConfig
	lock  *ledger.Lock
	lines *logqueue.Queue // behind cfg.Logger

	metrics *daemonMetrics
	ready   readiness.State
	running atomic.Bool
	work    underway
}

// NewDaemon makes a Daemon, named by the rules of a lock's name, of at most
// 193 bytes. It sends nothing. The error is a *ConfigError or a
// *lockcore.ConfigError.
//
// work gets the fencing token of the lease it runs under, greater than that of
// every other replica before; a restart on the same replica keeps it. Its
// context is done when the lease ends (context.Cause is lockcore.ErrLeaseLost,
// lockcore.ErrLeaseExpired or lockcore.ErrClosed) or Run's context does.
// It is started again whatever it returns, nil too, until Run's context ends: a
// function that ends by itself is no daemon. For work that is done at some
// time see Once.
func NewDaemon(client *lockcore.Client, name string, work func(ctx context.Context, token uint64) error, cfg DaemonConfig) (*Daemon, error) {
	if client == nil {
		return nil, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	if work == nil {
		return nil, &ConfigError{"work", "nil", "a function"}
	}
	if len(name) > 200-len(daemonNames) {
		return nil, &ConfigError{"name", fmt.Sprintf("%d bytes long", len(name)), fmt.Sprintf("1 to %d bytes", 200-len(daemonNames))}
	}
	lease := lockcore.LeaseConfig{TTL: cfg.TTL, Identity: cfg.Identity}
	if _, err := client.Mutex(name, lease); err != nil {
		return nil, fmt.Errorf("singleton: daemon: %w", err)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	lock, err := ledger.NewLock(client, daemonNames+name, lease)
	if err != nil {
		return nil, fmt.Errorf("singleton: daemon: %w", err)
	}
	m, err := newDaemonMetrics(cfg.Registerer, name)
	if err != nil {
		return nil, err
	}
	lines, err := logqueue.New(cfg.Logger, cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("singleton: daemon: %w", err)
	}
	cfg.Logger = lines.Logger().WithValues("daemon", name)
	return &Daemon{name: name, do: work, cfg: cfg, lock: lock, lines: lines, metrics: m}, nil
}

func (cfg DaemonConfig) complete() (DaemonConfig, error) {
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Backoff = cmp.Or(cfg.Backoff, defaultDaemonBackoff)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, max(defaultDaemonMaxBackoff, cfg.Backoff))
	cfg.ResetAfter = cmp.Or(cfg.ResetAfter, cfg.MaxBackoff)
	cfg.HandOverAfter = cmp.Or(cfg.HandOverAfter, defaultHandOverAfter)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, defaultShutdown)
	refused := func(field string, value time.Duration, rule string) error {
		return &ConfigError{"DaemonConfig." + field, value.String(), rule}
	}
	switch {
	case cfg.Backoff < time.Millisecond:
		return cfg, refused("Backoff", cfg.Backoff, "0 (1s) or at least 1ms")
	case cfg.MaxBackoff < cfg.Backoff:
		return cfg, refused("MaxBackoff", cfg.MaxBackoff, "0 (1m) or at least Backoff, "+cfg.Backoff.String())
	case cfg.ShutdownTimeout < 0:
		return cfg, refused("ShutdownTimeout", cfg.ShutdownTimeout, "0 (10s) or positive")
	case cfg.ResetAfter < 0:
		return cfg, refused("ResetAfter", cfg.ResetAfter, "0 (MaxBackoff) or positive")
	}
	return cfg, nil
}

// Name is the name of the daemon.
func (s *Daemon) Name() string { return s.name }

// Check reports that the function goes on although its lease on this replica ended
// longer than tolerance ago, in which case another replica may run it as well: nil, or
// an error that is ErrOverrun and the cause, until the function returns. A function
// that is stopped by choice is none: its lease is renewed for as long as it takes. It
// asks nobody, so that it can serve a liveness probe.
func (s *Daemon) Check(tolerance time.Duration) error { return s.work.overdue("daemon", tolerance) }

// Ready is nil if Run is under way and the function runs here, or this replica stands in
// line and nothing is in error now; if not, it says why. A function that ends by itself
// is no such error: see the metrics. It asks nobody, and is meant for a readiness probe.
func (s *Daemon) Ready() error {
	if err := s.ready.Err(); err != nil {
		return fmt.Errorf("singleton: daemon %q: %w: %w", s.name, ErrNotReady, err)
	}
	if err := s.work.overdue("daemon", 0); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// ErrOverrun is what Check finds: work goes on although its context has ended.
var ErrOverrun = errors.New("singleton: the work goes on although its context has ended")
