package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// OnceConfig is how a Once works. All replicas must use the same.
type OnceConfig struct {
	// TTL of the hold on the run: how long the others wait before one of them
	// takes over from a runner that died. Default 10 s; 100 ms to 24 h.
	TTL time.Duration

	// MaxAttempts is how many runners in all one run may lose, because they died
	// or were shut down in mid-work. After that it is recorded as unknown (with
	// 1: as lost), and all who wait are told. Default 5.
	MaxAttempts int

	// Remember is how long a success is remembered after the last Do that asked
	// for it. After that the work is done anew, so let it be longer than any
	// time in which no replica starts. Default a year, at least 30 days (720h).
	Remember time.Duration

	// ShutdownTimeout is how long Do may take to return after its context has ended,
	// whether or not the server answers, if work returns when its context is done: to
	// record or to hand over the run. Work that takes longer is waited for, and then
	// two fifths of ShutdownTimeout are left for that. Default 10 s.
	ShutdownTimeout time.Duration

	// Identity under which the others see this replica. Default: the Client's.
	Identity string

	// Logger gets the runs and the waits; its zero value discards.
	Logger logr.Logger
}

const (
	defaultRemember = 365 * 24 * time.Hour
	minRemember     = 30 * 24 * time.Hour
	maxRemember     = 100 * 365 * 24 * time.Hour

	// onceNames keeps the ledgers of Onces apart from those of jobs.
	onceNames = "once/"

	// onceKeep is how many failures are kept for those who wait for one.
	onceKeep = 20
)

// ErrOnceFailed is what every *OnceError is.
var ErrOnceFailed = errors.New("singleton: once: failed")

// OnceError says that the run which a Do did, or waited for, has failed. It is
// ErrOnceFailed, and on the replica that did the work also what the work
// returned.
type OnceError struct {
	Name    string
	Holder  string // who ran it last; empty if nobody knows any more
	Attempt int    // 1, or more if runners were lost
	Token   uint64
	// Outcome is OutcomeFailed; or OutcomeUnknown, if a runner died, could not
	// record its success, or returned ErrUnknownOutcome, so that its effect may have come
	// about, and the others failed; or OutcomeLost, if no other was left, with
	// MaxAttempts 1.
	Outcome string
	// Reason is the text of the work's error. Who waited sees 500 bytes of it.
	Reason string

	cause error
}

func (e *OnceError) Error() string {
	where := ""
	if e.Holder != "" {
		where = fmt.Sprintf(" on %s, attempt %d", e.Holder, e.Attempt)
	}
	return fmt.Sprintf("singleton: once %q: %s%s: %s", e.Name, e.Outcome, where, e.Reason)
}

// Is reports true for ErrOnceFailed.
func (e *OnceError) Is(target error) bool { return target == ErrOnceFailed }

// Unwrap is what the work returned, on the replica that did it.
func (e *OnceError) Unwrap() error { return e.cause }

// A Once is work that is to succeed once in the life of a fleet, such as a
// migration at the start of a release: one replica does it, the others wait for
// its result. A success is remembered under the name, so put a version or a
// fingerprint of the work into the name to have new work done.
//
// What it guarantees, while the server keeps its data: at most one run at a time
// has a valid lease, and at most one success is ever accepted for the name. When
// Do returns nil, the work has returned nil at some replica.
//
// What it does not: that the effects happen once. A runner may die after the
// effect and before the record, and is then succeeded by another, with a higher
// token; and if the server loses its data, the work is done anew. Effects happen
// exactly once if they commit in one transaction with a marker that is looked
// for first (package sqlonce does that: the job "once/<name>" and a fixed tick,
// such as time.UnixMilli(1)).
//
// It is a handle without state and safe for concurrent use.
type Once struct {
	name   string
	cfg    OnceConfig
	ledger *ledger.Ledger
}

// NewOnce makes a Once, named by the rules of a lock's name, of at most 195
// bytes. It sends nothing. The error is a *ConfigError or a
// *lockcore.ConfigError.
func NewOnce(client *lockcore.Client, name string, cfg OnceConfig) (*Once, error) {
	if client == nil {
		return nil, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	if name == "" || len(name) > 200-len(onceNames) {
		return nil, &ConfigError{"name", fmt.Sprintf("%d bytes long", len(name)), fmt.Sprintf("1 to %d bytes", 200-len(onceNames))}
	}
	cfg.Remember = cmp.Or(cfg.Remember, defaultRemember)
	if cfg.Remember < minRemember || cfg.Remember > maxRemember {
		return nil, &ConfigError{"OnceConfig.Remember", cfg.Remember.String(), "0 (8760h) or from 720h to a hundred years"}
	}
	if cfg.MaxAttempts < 0 {
		return nil, &ConfigError{"OnceConfig.MaxAttempts", strconv.Itoa(cfg.MaxAttempts), "0 (5) or positive"}
	}
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, defaultShutdown)
	if cfg.ShutdownTimeout < 0 {
		return nil, &ConfigError{"OnceConfig.ShutdownTimeout", cfg.ShutdownTimeout.String(), "0 (10s) or positive"}
	}
	l, err := ledger.New(client, onceNames+name, ledger.Config{
		Lease:       lockcore.LeaseConfig{TTL: cfg.TTL, Identity: cfg.Identity},
		MaxAttempts: cfg.MaxAttempts, KeepRuns: onceKeep, Retain: cfg.Remember,
	})
	if err != nil {
		return nil, fmt.Errorf("singleton: once: %w", err)
	}
	cfg.TTL = cmp.Or(cfg.TTL, 10*time.Second)
	cfg.Identity = cmp.Or(cfg.Identity, client.Identity())
	lines, err := logqueue.New(cfg.Logger, nil)
	if err != nil {
		return nil, fmt.Errorf("singleton: once: %w", err)
	}
	cfg.Logger = lines.Logger().WithValues("once", name)
	return &Once{name: name, cfg: cfg, ledger: l}, nil
}

// Name is the name of the work.
func (o *Once) Name() string { return o.name }

// Do sees to it that the work has been done, and returns how that ended:
//
//   - nil: it has succeeded, here or on another replica, now or before. Who finds
//     that remembered does not wait.
//   - a *OnceError: the run that this call did, or found under way, has failed.
//     All who waited for that run are told the same. A failure is not remembered
//     beyond that: a Do that begins later runs the work again.
//   - another error: it is not known. The error is ctx's if ctx has ended,
//     what work returned being joined; or the server has refused, or the Client
//     is closed.
//
// work gets the fencing token of the run, greater than that of every run before.
// Its context is done when ctx is or when the lease on the run ends, with a
// cause. A panic counts as failure (ErrPanic). Its error's text is kept at the
// server for the others to read. If ctx ends while work runs, its error is no
// failure: it is left to another replica at once. If the lease was lost, Do waits
// for the replica that took over, or runs work again itself, so that one call may
// run it more than once, never twice at a time.
//
// Waiting costs one look per TTL; the end of a run is told by a message. A server
// that is away is waited for until ctx ends, so give ctx a deadline. Work must not
// call Do for its own name.
func (o *Once) Do(ctx context.Context, work func(ctx context.Context, token uint64) error) error {
	if work == nil {
		return &ConfigError{"work", "nil", "a function"}
	}
	deadline, done := stopping.New(ctx, o.cfg.ShutdownTimeout, o.cfg.ShutdownTimeout/5)
	defer done()
	c := newOnceCall(o, deadline, work)
	defer c.unwatch()
	for {
		done, err := c.step(ctx)
		var failed *OnceError
		switch {
		case err == nil && done:
			return nil
		case err == nil:
		case errors.As(err, &failed):
			return failed
		default:
			return fmt.Errorf("singleton: once %q: %w", o.name, err)
		}
	}
}
