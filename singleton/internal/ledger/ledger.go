package ledger

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Ledger records which ticks of a job have run, on which replica, and how they ended.
// Replicas claim ticks there, so that one of them runs each tick.
//
// It is a handle without state and safe for concurrent use.
type Ledger struct {
	lock    *lock.Name
	scripts *scripts
	name    string
	keys    keys
	cfg     Config
}

// Config configures the ledger of a job. All replicas of a job should use the same. The
// caller has checked all fields except Lease.
type Config struct {
	Lease        lockcore.LeaseConfig // on a tick
	MaxAttempts  int                  // as of a singleton.JobConfig
	AllowOverlap bool                 // as there
	KeepRuns     int                  // the number of ended runs in the history; default 100, at most 1,100

	// Definition identifies the definition of the job, so that replicas with different
	// schedules or settings are distinguished during a rollout. One definition acts at
	// a time; replicas of others claim nothing. part_definitions.lua has the rule. Up to 200 bytes
	// without spaces.
	Definition string

	// Schedule is the text of the schedule of the Definition. When a definition takes over from
	// one with another Schedule, an entry of the history has the time since the newest
	// accounted tick, see State.Rescheduled, up to now or to State.Shared, and the ticks of the new schedule begin then.
	// Open runs are kept.
	Schedule string

	// Retain is how long the ledger is kept after its last use. It must exceed the job's
	// longest interval, otherwise a tick could be claimed again. Default and minimum 30
	// days.
	Retain time.Duration
}

const (
	// DefaultAttempts is the default of Config.MaxAttempts.
	DefaultAttempts = 5

	// DefaultKeepRuns is the default of Config.KeepRuns.
	DefaultKeepRuns = 100

	defaultRetain = 30 * 24 * time.Hour

	// tombTTL outlives any request that is still under way.
	tombTTL = 5 * time.Minute

	// lookSoon is how often replicas check that wait for something which no message announces. Beside another
	// definition, that is a third of the time after which they count as dead (part_definitions.lua).
	lookSoon = 5 * time.Second

	// readEvery is how long Look suffices: it does not find replicas that have died.
	readEvery = 5 * time.Minute
)

// New returns the ledger of a job, named by the rules of a lock's name. It sends nothing.
// The error is a *noonlock.ConfigError.
func New(c *lockcore.Client, job string, cfg Config) (*Ledger, error) {
	return newLedger(c, job, &cfg.Lease, cfg)
}

// Handle returns the ledger of a job for a caller that claims nothing, as New does.
func Handle(c *lockcore.Client, job string) (*Ledger, error) {
	return newLedger(c, job, nil, Config{})
}

func newLedger(c *lockcore.Client, job string, lease *lockcore.LeaseConfig, cfg Config) (*Ledger, error) {
	if c == nil {
		return nil, refuse("client", "a *lockcore.Client", "%s", "nil")
	}
	if rule := input.Fault(job, 200, true); rule != "" {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(job), Rule: rule}
	}
	if lock.Of(c).Quorum() != nil {
		return nil, errQuorum
	}
	n, err := lock.Of(c).Name(lock.JobNames+job, (*lock.LeaseConfig)(lease))
	if err != nil {
		return nil, err
	}
	s, err := ownScripts()
	if err != nil {
		return nil, err
	}
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, DefaultAttempts)
	cfg.KeepRuns = cmp.Or(cfg.KeepRuns, DefaultKeepRuns)
	cfg.Retain = cmp.Or(cfg.Retain, defaultRetain)
	return &Ledger{lock: n, scripts: s, name: job, keys: keysOf(n, job), cfg: cfg}, nil
}

var errQuorum = &noonlock.ConfigError{
	Package: "singleton",
	Field:   "client", Value: "a Client of NewQuorum",
	Rule: "a Client of New: the ledger of a job is kept on one server",
}

// Open creates the ledger of the job if there is none, extends its lifetime, and returns
// its state. before is the last state that the caller got. In the first call, before is where
// a new ledger begins: the zero value means the server's present time. Set before.Shared if the schedule of the caller
// differs from before.Spec.
//
// A replica must call Open or Look after State.Again at the latest, otherwise other replicas consider it dead. On error
// Open returns a state that must be passed to the next Open, so that one replica is not counted twice.
func (l *Ledger) Open(ctx context.Context, before State) (State, error) {
	const op = "open ledger"
	k := l.keys
	if before.replica == "" || before.def != l.cfg.Definition {
		before.replica, before.started = cmp.Or(before.replica, l.lock.Client().NewID()), l.lock.Client().Elapsed()
		before.def = l.cfg.Definition
	}
	after, sure, ended := l.remembered(before)
	if before.Now.IsZero() { // it could not run a tick that is due later
		if err := l.lock.CheckRights(ctx, Rights{}.Needs()); err != nil {
			return before, opError(op, l.name, err)
		}
	}
	age := (l.lock.Client().Elapsed() - before.started).Milliseconds()
	state, err := l.state(ctx, l.scripts.open.Call(wire.Keys(k.job, k.runs, k.acts, k.payloads),
		after, sure, ended, l.cfg.KeepRuns, l.cfg.Retain.Milliseconds(), before.replica, l.cfg.Definition, age, l.lock.Client().Identity(),
		l.cfg.Schedule, before.control, millis(before.Last)+" "+before.Spec, l.lock.TTL().Milliseconds(), millis(before.Shared), k.channel))
	if err != nil {
		return before, opError(op, l.name, err)
	}
	state.replica, state.started, state.def = before.replica, before.started, before.def
	state.Lost = before.id != "" && state.id != before.id
	state.of, state.read = l, l.lock.Client().Elapsed()
	return state, nil
}

// Look returns the state that Open would return, with less work for the server. It returns false if Open must be called,
// because something has changed, runs are open, or the state is old.
func (l *Ledger) Look(ctx context.Context, st State) (_ State, same bool, err error) {
	const op = "look at ledger"
	if st.mark == "" || st.of != l || l.lock.Client().Elapsed()-st.read >= readEvery {
		return st, false, nil
	}
	req := l.scripts.look.Call(wire.Keys(l.keys.job, l.keys.runs), st.replica, st.mark)
	answer, err := l.lock.Ask(ctx, req)
	if err != nil || answer == int64(0) {
		return st, false, opError(op, l.name, err)
	}
	us, err := strconv.ParseInt(wire.Text(answer), 10, 64)
	if err != nil {
		return st, false, opError(op, l.name, req.OddReply(answer))
	}
	st.Now, st.Lost = time.UnixMicro(us).UTC(), false
	st.Settling = settling(st.id, st.Begun, st.Now)
	return st, true, nil
}

// Leave deregisters the replica of that state, which runs no more ticks. Replicas of another
// definition then take over without waiting until it counts as dead.
func (l *Ledger) Leave(ctx context.Context, state State) error {
	const op = "leave ledger"
	if state.replica == "" {
		return nil
	}
	s := l.scripts.leave
	_, err := l.lock.Persist(ctx, s.Call(wire.Keys(l.keys.job), state.replica, l.keys.channel))
	return opError(op, l.name, err)
}

// Watch calls nudge when the job may have changed: a run ended or became open, or messages
// may have been lost. If the message says that a run has ended, and nothing else has changed, end
// names that run; otherwise it is nil. nudge must not block. Messages can be lost, so the caller
// must also check periodically.
func (l *Ledger) Watch(nudge func(end *RunID, succeeded bool)) (stop func()) {
	return l.lock.Watch(l.keys.channel, func(message string) {
		rest, isEnd := strings.CutPrefix(message, "ended ")
		text, outcome, _ := strings.Cut(rest, " ")
		id, err := readRunID(text)
		if !isEnd || err != nil {
			nudge(nil, false)
			return
		}
		nudge(&id, outcome == OutcomeSucceeded)
	})
}

// Changes has a value for what causes a nudge of Watch, and for the beginnings of attempts. Those have
// their own channel, because replicas that wait for a tick need not check each. It is closed when ctx ends
// or the Client is closed.
func (l *Ledger) Changes(ctx context.Context) <-chan struct{} {
	return l.lock.Hints(ctx, l.keys.channel, l.keys.begins)
}

// ask runs a script or command that returns a list and may be repeated.
func (l *Ledger) ask(ctx context.Context, req wire.Request) ([]any, error) {
	answer, err := l.lock.Ask(ctx, req)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok || len(list) == 0 && req.IsScript() {
		return nil, req.OddReply(answer)
	}
	return list, nil
}

// opError adds the operation and the job to errors.
func opError(op, name string, errs ...error) error {
	return input.Operation("singleton", op, name, errs...)
}

func refuse(field, rule, format string, value any) error {
	return &noonlock.ConfigError{Package: "singleton", Field: field, Value: fmt.Sprintf(format, value), Rule: rule}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// millis returns a time as the scripts expect it; the zero time is empty.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return decimal(t.UnixMilli())
}

// flag returns a condition as the scripts expect it.
func flag(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
