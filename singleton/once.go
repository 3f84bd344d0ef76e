package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// OnceConfig configures a Once. All replicas must use the same.
type OnceConfig struct {
	// TTL of the lease on a run: how long the other replicas wait before one of them
	// takes over from a replica that died. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// MaxAttempts is the number of attempts at one run, over all replicas: further attempts
	// follow if a replica dies or shuts down during the run. If none is left, the run is
	// recorded as unknown, or as failed if each attempt has failed, and every Do that waits for it returns that. Default 5.
	MaxAttempts int

	// Remember is how long a success is kept after the last Do that found it. After that
	// the work runs again, so choose a duration longer than any period in which no replica
	// starts. Default one year, at least 30 days (720h).
	Remember time.Duration

	// ShutdownTimeout is how long Do may take to return after its context has ended,
	// whether or not the server answers, if the work returns when its context is done. Do
	// waits for work that takes longer, and then has up to three fifths of ShutdownTimeout
	// to record or release the run. Default 10 s.
	ShutdownTimeout time.Duration
}

const (
	defaultRemember = 365 * 24 * time.Hour
	minRemember     = 30 * 24 * time.Hour
	maxRemember     = 100 * 365 * 24 * time.Hour

	// onceNames keeps the ledgers of Onces apart from those of jobs.
	onceNames = "once/"

	// onceKeep is the number of failures that are kept for the calls that wait for one.
	onceKeep = 20
)

// ErrOnceFailed means that the run which Do did, or waited for, has failed. Do joins it with the error of the work, on
// the replica that did it, and with ErrUnknownOutcome if an attempt may have taken effect: its replica died, could not
// record its success, or returned ErrUnknownOutcome. The text has the replica of the last attempt, and the reason.
var ErrOnceFailed = errors.New("singleton: once failed")

// A onceError is a run that has failed.
type onceError struct {
	name    string
	holder  string // the replica of the last attempt; empty if no longer recorded
	attempt int    // 1, or more if earlier holders died or were shut down
	outcome Outcome
	reason  string // on other replicas, the first 500 bytes
	cause   error  // of the work, if that ran here
}

func (e *onceError) Error() string {
	where := ""
	if e.holder != "" {
		where = fmt.Sprintf(" on %s, attempt %d", e.holder, e.attempt)
	}
	return fmt.Sprintf("singleton: once %q: %s%s: %s", e.name, e.outcome, where, e.reason)
}

func (e *onceError) Unwrap() []error {
	all := []error{ErrOnceFailed}
	if e.outcome == OutcomeUnknown {
		all = append(all, ErrUnknownOutcome)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	return all
}

// A Once is work that must succeed once for all replicas, such as a migration at the start
// of a release. One replica does the work, and the others wait for its result. The success
// is remembered under the name. To run new work, put its version or fingerprint into the
// name.
//
// While the server keeps its data, at most one run at a time has a valid lease, and at most
// one success is accepted for the name. When Do returns nil, the work has returned nil on
// some replica.
//
// A Once does not guarantee that effects happen once. A replica may die after the effect
// and before the success is recorded; another replica then repeats the work, with a greater
// token. If the server loses its data, the work is done again. Effects happen exactly once
// if they commit in one transaction with a marker, as in package sqlonce: use the job
// "once/<name>" and a fixed tick, such as time.UnixMilli(1).
//
// A Once has no state and is safe for concurrent use.
type Once struct {
	name   string
	cfg    OnceConfig
	ledger *ledger.Ledger

	identity string
	log      logr.Logger
	reports  *readiness.Reports
}

// NewOnce returns a Once. Its name follows the rules of a lock's name and has at most 195
// bytes. NewOnce sends no request. The error is a *noonlock.ConfigError.
func NewOnce(client *lockcore.Client, name string, cfg OnceConfig) (*Once, error) {
	if err := checkName(name, onceNames); err != nil {
		return nil, err
	}
	cfg.Remember = cmp.Or(cfg.Remember, defaultRemember)
	if cfg.Remember < minRemember || cfg.Remember > maxRemember {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "OnceConfig.Remember", Value: cfg.Remember.String(), Rule: "0 (8760h) or from 720h to a hundred years"}
	}
	if cfg.MaxAttempts < 0 {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "OnceConfig.MaxAttempts", Value: strconv.Itoa(cfg.MaxAttempts), Rule: "0 (5) or positive"}
	}
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, defaultShutdown)
	if cfg.ShutdownTimeout < 0 {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "OnceConfig.ShutdownTimeout", Value: cfg.ShutdownTimeout.String(), Rule: "0 (10s) or positive"}
	}
	l, err := ledger.New(client, onceNames+name, ledger.Config{
		Lease:       lockcore.LeaseConfig{TTL: cfg.TTL},
		MaxAttempts: cfg.MaxAttempts, KeepRuns: onceKeep, Retain: cfg.Remember,
	})
	if err != nil {
		return nil, translate(err, "OnceConfig", "once")
	}
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	c := lock.Of(client)
	return &Once{
		name: name, cfg: cfg, ledger: l, identity: client.Identity(), log: c.Logger().WithValues("once", name),
		reports: c.Reports("calls", "ledger unavailable; waiting", "ledger available again"),
	}, nil
}

// Do does the work, or waits until another replica has done it. It returns
//
//   - nil: the work has succeeded, here or on another replica, now or before. Do does
//     not wait if a success is remembered.
//   - ErrOnceFailed: the run that this call did or waited for has failed, for all calls
//     that waited for it. A failure is not stored: a later Do runs the work again.
//   - another error: the outcome is not known. If ctx has ended, the error is ctx's,
//     joined with the error of the work. Otherwise the server has refused a request, or
//     the Client is closed.
//
// The context of work is done, with a cause, when ctx ends or the lease of the run ends. lockcore.FromContext of it
// returns the lease, whose fencing token is greater than every earlier one. A panic counts
// as a failure (ErrPanic). The text of an error is stored on the server for the other
// replicas.
//
// If ctx ends while work runs, its error is not a failure: the run is released for another
// replica. If the lease is lost, Do waits for the replica that takes over, or runs work
// again. One call may therefore run work more than once, but never twice at the same time.
//
// A message announces the end of a run; in case it is lost, a waiting Do also checks once
// per TTL. During an outage of the server Do waits until ctx ends, so give ctx a deadline.
// work must not call Do for its own name.
func (o *Once) Do(ctx context.Context, work func(ctx context.Context) error) error {
	if work == nil {
		return &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	deadline, done := stopping.New(ctx, o.cfg.ShutdownTimeout, o.cfg.ShutdownTimeout/5)
	defer done()
	c := &onceCall{
		loop: newLoop(&readiness.State{}, o.log, o.reports, false),
		o:    o, work: work, stop: deadline, unwatch: func() {},
	}
	defer func() { c.unwatch() }()
	defer c.ready.Run(ctx)()
	err := c.run(ctx, func() (time.Duration, bool, error) { return c.step(ctx) })
	if failed, ok := errors.AsType[*onceError](err); ok {
		return failed
	}
	if err == nil {
		return nil
	}
	for _, why := range []error{ctx.Err(), context.Cause(ctx)} {
		if why != nil && !errors.Is(err, why) {
			err = errors.Join(why, err)
		}
	}
	return fmt.Errorf("singleton: once %q: %w", o.name, err)
}
