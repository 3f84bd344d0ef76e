package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Ledger says of one job which of its ticks have been run, by whom, and how
// that ended. It is where replicas claim a tick, so that one of them runs it.
//
// What it guarantees: a tick that has ended, or was skipped, is never claimed
// again while the server keeps its data; at most one Run of a tick has a valid
// lease. What it does not: that the work of a Run whose lease was lost has
// stopped, or had no effect; only the fencing token at the resource helps there.
//
// It is a handle without state and safe for concurrent use.
type Ledger struct {
	engine  engine.Engine
	scripts *scripts
	name    string
	keys    keys
	cfg     Config
}

// Config is how the ledger of a job is kept. All replicas of a job should
// use the same.
type Config struct {
	// Lease is the hold on a tick while it is run. Its TTL is how long the
	// others wait before they take over from a holder that died.
	Lease lockcore.LeaseConfig

	// MaxAttempts is how often a tick is tried in all, by all replicas. Default
	// 5. 1 is at most once: a tick whose holder died is recorded as lost.
	MaxAttempts int

	// AllowOverlap lets a tick be claimed while an earlier one is still run.
	AllowOverlap bool

	// KeepRuns is how many ended runs the history keeps. Default 100, at most
	// 10,000.
	KeepRuns int

	// Definition says what the job is, so that replicas which run it by another
	// schedule, or otherwise differently, can be told apart while a new version is
	// rolled out. One definition acts at a time; replicas of others claim nothing. The
	// definition that started last takes over when one of its replicas has lived for
	// 5 s, or at once where no other replica can act. It is on trial until it has ended
	// a run and lived for 5 minutes: if its replicas leave or die before, an older
	// definition acts again, and the next proof takes four times as long. Up to 200
	// bytes without spaces. Default: none, and the Ledger claims beside everybody.
	Definition string

	// Schedule says what names the job's ticks, as part of its Definition. Before a
	// definition takes over from one of another Schedule, Open asks it for the ticks
	// that the former one owes, see State.Handover. They are recorded as skipped,
	// and the ticks of the new one begin then. Runs that have not ended stay. Up to 200
	// bytes without spaces. Default: none, and its ticks go on from Last.
	Schedule string

	// Retain is how long the ledger outlives its last use. It must be longer
	// than the job's longest interval, or a tick could be claimed anew. Default
	// and least value 30 days.
	Retain time.Duration
}

const (
	defaultAttempts = 5
	defaultKeepRuns = 100
	minRetain       = 30 * 24 * time.Hour

	// replicaLapse is how long a replica counts as alive that is not heard of, and
	// trialLapse the same of one whose definition is on trial (part_generation.lua).
	replicaLapse = 90 * time.Second
	trialLapse   = 15 * time.Second

	// tombTTL outlives any request that is still under way.
	tombTTL = 5 * time.Minute

	// trialLook is how often replicas look while a definition is on trial beside others.
	trialLook = trialLapse / 3
)

// New returns the ledger of a job, named by the rules of a lock's name. It sends nothing.
// The error is a *lockcore.ConfigError.
func New(c *lockcore.Client, job string, cfg Config) (*Ledger, error) {
	if rule := input.Fault(job, 200, true); rule != "" {
		return nil, &lockcore.ConfigError{Field: "job", Value: input.Quote(job), Rule: rule}
	}
	e, err := c.Engine(names+job, cfg.Lease)
	if err != nil {
		return nil, err
	}
	s, err := ownScripts()
	if err != nil {
		return nil, err
	}
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, defaultAttempts)
	cfg.KeepRuns = cmp.Or(cfg.KeepRuns, defaultKeepRuns)
	cfg.Retain = cmp.Or(cfg.Retain, minRetain)
	switch {
	case cfg.MaxAttempts < 1:
		return nil, refuse("Config.MaxAttempts", "at least 1, or 0 (5)", "%d", cfg.MaxAttempts)
	case cfg.KeepRuns < 1 || cfg.KeepRuns > 10_000:
		return nil, refuse("Config.KeepRuns", "from 1 to 10000, or 0 (100)", "%d", cfg.KeepRuns)
	case cfg.Definition != "" && input.Fault(cfg.Definition, 200, true) != "":
		return nil, refuse("Config.Definition", input.Fault(cfg.Definition, 200, true), "%s", input.Quote(cfg.Definition))
	case cfg.Schedule != "" && input.Fault(cfg.Schedule, 200, true) != "":
		return nil, refuse("Config.Schedule", input.Fault(cfg.Schedule, 200, true), "%s", input.Quote(cfg.Schedule))
	case cfg.Retain < minRetain || cfg.Retain > 100*365*24*time.Hour:
		return nil, refuse("Config.Retain", "from 720h to a hundred years, or 0 (720h)", "%s", cfg.Retain)
	}
	return &Ledger{engine: e, scripts: s, name: job, keys: keysOf(e, job), cfg: cfg}, nil
}

// Open makes sure that the job has a ledger, keeps it alive, and tells how it
// stands. before is the state that the caller got last, the zero value when it
// starts. If the server has lost data since, the ledger begins again, or goes on,
// where that says, so that what was open is claimed anew and what was over is not.
// Without it a new ledger begins now on the server's clock. before.Next is told to
// others by Status: set it to the tick that comes next. before.Spec is kept for a later
// version that takes over, and before.Handover is the answer to one that Open has asked.
//
// A replica calls it at least every 30 s, or after State.Again where that is less,
// to stay alive in the others' eyes. With an
// error it returns before, as the replica that may have started: say that the next
// time, so that one start is not taken for two.
func (l *Ledger) Open(ctx context.Context, before State) (State, error) {
	const op = "open ledger"
	k := l.keys
	if before.replica == "" {
		before.replica = l.engine.NewID()
	}
	start, me := "0", ""
	if before.own == 0 {
		start = "1"
	}
	if l.cfg.Definition != "" {
		me = before.replica
	}
	after, sure, ended := l.remembered(before)
	next := ""
	if !before.Next.IsZero() {
		next = decimal(before.Next.UnixMilli())
	}
	upto, seen, first, newest, count := "", "", "", "", ""
	if h := before.Handover; h != nil && !h.Upto.IsZero() {
		upto, seen = decimal(h.Upto.UnixMilli()), decimal(before.Last.UnixMilli())
		if owed := h.Skipped; owed != nil {
			if err := owed.check(); err != nil {
				return before, opError(op, l.name, err)
			}
			first, newest, count = decimal(owed.First.UnixMilli()), decimal(owed.Last.UnixMilli()), strconv.Itoa(owed.Count)
		}
	}
	s := l.scripts.open
	answer, err := l.ask(ctx, s.Call([]string{k.job, k.open, k.runs, k.live, k.tomb(before.replica), k.defs},
		after, sure, ended, l.cfg.KeepRuns, l.cfg.Retain.Milliseconds(), me, l.cfg.Definition, before.own, start,
		replicaLapse.Milliseconds(), next, tombTTL.Milliseconds(), l.cfg.Schedule, before.trust(), before.Spec, upto, seen, first, newest, count))
	if err != nil {
		return before, opError(op, l.name, err)
	}
	state, err := readState(s, answer)
	if err != nil {
		return before, opError(op, l.name, err)
	}
	state.replica, state.back = before.replica, before.back
	if before.own != 0 && state.Now.Sub(before.Now) > before.away() {
		state.back = state.Now
	}
	state.Lost = before.id != "" && state.id != before.id
	return state, nil
}

// Leave tells that the replica of that state runs no more ticks, so that replicas
// of an older definition need not wait until it is missed.
func (l *Ledger) Leave(ctx context.Context, state State) error {
	const op = "leave ledger"
	if state.replica == "" || l.cfg.Definition == "" {
		return nil
	}
	s := l.scripts.leave
	if _, err := l.repeat(ctx, s.Call([]string{l.keys.job, l.keys.live}, state.replica)); err != nil {
		return opError(op, l.name, err)
	}
	return nil
}

// Now is the server's clock, and on which side of it ours stands: the answer
// lies within half of took of the truth.
func (l *Ledger) Now(ctx context.Context) (now time.Time, took time.Duration, err error) {
	t0 := l.engine.Now()
	answer, err := l.ask(ctx, wire.Command("time"))
	took = l.engine.Now() - t0
	if err != nil {
		return time.Time{}, took, opError("server time", l.name, err)
	}
	sec, err1 := strconv.ParseInt(wire.Text(answer[0]), 10, 64)
	usec, err2 := strconv.ParseInt(wire.Text(answer[len(answer)-1]), 10, 64)
	if errors.Join(err1, err2) != nil || len(answer) != 2 {
		return time.Time{}, took, opError("server time", l.name, &lockcore.ReplyError{Script: "time", Reply: fmt.Sprint(answer)})
	}
	return time.Unix(sec, usec*1000).UTC(), took, nil
}

// Watch calls nudge when something of the job may have changed: a run ended or
// became open, or messages may have been missed. nudge holds up nothing. A
// message may be lost, so ask now and then all the same.
func (l *Ledger) Watch(nudge func()) (stop func()) {
	return l.engine.Watch(l.keys.channel, nudge)
}

// WatchBegins is Watch for the beginning of attempts, which Watch does not tell: who
// waits for a tick need not look at each.
func (l *Ledger) WatchBegins(nudge func()) (stop func()) {
	return l.engine.Watch(l.keys.begins, nudge)
}

// ask runs a script or command that answers a list and may be repeated.
func (l *Ledger) ask(ctx context.Context, req wire.Request) ([]any, error) {
	answer, err := l.engine.Ask(ctx, req)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok || len(list) == 0 && req.IsScript() {
		return nil, req.OddReply(answer)
	}
	return list, nil
}

// opError names the operation and the job that an error belongs to.
func opError(op, name string, errs ...error) error {
	return fmt.Errorf("singleton: %s %q: %w", op, name, errors.Join(errs...))
}

func refuse(field, rule, format string, value any) error {
	return &lockcore.ConfigError{Field: field, Value: fmt.Sprintf(format, value), Rule: rule}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
