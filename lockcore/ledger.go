package lockcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
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
	c     *Client
	name  string
	keys  *jobKeys
	terms *leaseTerms
	cfg   LedgerConfig
}

// LedgerConfig is how the ledger of a job is kept. All replicas of a job should
// use the same.
type LedgerConfig struct {
	// Lease is the hold on a tick while it is run. Its TTL is how long the
	// others wait before they take over from a holder that died.
	Lease LeaseConfig

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
	// that the former one owes, see LedgerState.Handover. They are recorded as skipped,
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

	// trialLook is how often replicas look while a definition is on trial beside others.
	trialLook = trialLapse / 3
)

// Ledger returns the ledger of a job, named by the rules of a lock's name. It
// sends nothing. The error is a *ConfigError.
func (c *Client) Ledger(job string, cfg LedgerConfig) (*Ledger, error) {
	if err := checkName("job", job); err != nil {
		return nil, err
	}
	terms, err := cfg.Lease.terms(c.identity)
	if err != nil {
		return nil, err
	}
	terms.keepTokens = runnersTokenRetention
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, defaultAttempts)
	cfg.KeepRuns = cmp.Or(cfg.KeepRuns, defaultKeepRuns)
	cfg.Retain = cmp.Or(cfg.Retain, minRetain)
	switch {
	case cfg.MaxAttempts < 1:
		return nil, refuse("LedgerConfig.MaxAttempts", "at least 1, or 0 (5)", "%d", cfg.MaxAttempts)
	case cfg.KeepRuns < 1 || cfg.KeepRuns > 10_000:
		return nil, refuse("LedgerConfig.KeepRuns", "from 1 to 10000, or 0 (100)", "%d", cfg.KeepRuns)
	case cfg.Definition != "" && textFault(cfg.Definition, 200, true) != "":
		return nil, refuse("LedgerConfig.Definition", textFault(cfg.Definition, 200, true), "%s", abbreviate(cfg.Definition))
	case cfg.Schedule != "" && textFault(cfg.Schedule, 200, true) != "":
		return nil, refuse("LedgerConfig.Schedule", textFault(cfg.Schedule, 200, true), "%s", abbreviate(cfg.Schedule))
	case cfg.Retain < minRetain || cfg.Retain > 100*365*24*time.Hour:
		return nil, refuse("LedgerConfig.Retain", "from 720h to a hundred years, or 0 (720h)", "%s", cfg.Retain)
	}
	return &Ledger{c: c, name: job, keys: c.keys.job(job), terms: terms, cfg: cfg}, nil
}

// Mutex returns a lock under the job's name, which the ledger itself does not use:
// for work that is no row of ticks. It is apart from Client.Mutex of any name, so
// users' locks and the runners' never meet. Its lease is LedgerConfig.Lease.
func (l *Ledger) Mutex() *Mutex {
	l.c.metrics.kind(kindMutex)
	return &Mutex{c: l.c, keys: l.keys.lockKeys, terms: l.terms, kind: mutexKind{}}
}

// Open makes sure that the job has a ledger, keeps it alive, and tells how it
// stands. before is the state that the caller got last, the zero value when it
// starts. If the server has lost data since, the ledger begins again, or goes on,
// where that says, so that what was open is claimed anew and what was over is not.
// Without it a new ledger begins now on the server's clock. before.Next is told to
// others by Status: set it to the tick that comes next. before.Spec is kept for a later
// version that takes over, and before.Handover is the answer to one that Open has asked.
//
// A replica calls it at least every 30 s, or after LedgerState.Again where that is less,
// to stay alive in the others' eyes. With an
// error it returns before, as the replica that may have started: say that the next
// time, so that one start is not taken for two.
func (l *Ledger) Open(ctx context.Context, before LedgerState) (LedgerState, error) {
	const op = "lockcore: open ledger"
	if ctx == nil {
		return before, opError(op, l.name, refuse("ctx", "a context", "%s", "nil"))
	}
	k := l.keys
	if before.replica == 0 {
		before.replica = l.c.attempts.Add(1)
	}
	start, me := "0", ""
	if before.own == 0 {
		start = "1"
	}
	if l.cfg.Definition != "" {
		me = l.member(before.replica)
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
	s := l.c.scripts.jobOpen
	answer, err := l.ask(ctx, s.Call([]string{k.job, k.open, k.runs, k.live, k.tomb(l.c.process, before.replica), k.defs},
		after, sure, ended, l.cfg.KeepRuns, millis(l.cfg.Retain), me, l.cfg.Definition, before.own, start,
		millis(replicaLapse), next, millis(tombTTL), l.cfg.Schedule, before.trust(), before.Spec, upto, seen, first, newest, count))
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

// member is how a replica is known among those of its generation.
func (l *Ledger) member(replica uint64) string {
	return l.c.process + "." + strconv.FormatUint(replica, 36)
}

// Leave tells that the replica of that state runs no more ticks, so that replicas
// of an older definition need not wait until it is missed.
func (l *Ledger) Leave(ctx context.Context, state LedgerState) error {
	const op = "lockcore: leave ledger"
	if ctx == nil {
		return opError(op, l.name, refuse("ctx", "a context", "%s", "nil"))
	}
	if state.replica == 0 || l.cfg.Definition == "" {
		return nil
	}
	s := l.c.scripts.jobLeave
	if _, err := l.repeat(ctx, s.Call([]string{l.keys.job, l.keys.live}, l.member(state.replica))); err != nil {
		return opError(op, l.name, err)
	}
	return nil
}

// Now is the server's clock, and on which side of it ours stands: the answer
// lies within half of took of the truth.
func (l *Ledger) Now(ctx context.Context) (now time.Time, took time.Duration, err error) {
	t0 := l.c.clock.Now()
	answer, err := l.ask(ctx, wire.Command("time"))
	took = l.c.clock.Now() - t0
	if err != nil {
		return time.Time{}, took, opError("lockcore: server time", l.name, err)
	}
	sec, err1 := strconv.ParseInt(wire.Text(answer[0]), 10, 64)
	usec, err2 := strconv.ParseInt(wire.Text(answer[len(answer)-1]), 10, 64)
	if errors.Join(err1, err2) != nil || len(answer) != 2 {
		return time.Time{}, took, opError("lockcore: server time", l.name, &ReplyError{Script: "time", Reply: fmt.Sprint(answer)})
	}
	return time.Unix(sec, usec*1000).UTC(), took, nil
}

// Watch calls nudge when something of the job may have changed: a run ended or
// became open, or messages may have been missed. nudge holds up nothing. A
// message may be lost, so ask now and then all the same.
func (l *Ledger) Watch(nudge func()) (stop func()) {
	return l.c.sub.watch(l.keys.channel, nudge)
}

// WatchBegins is Watch for the beginning of attempts, which Watch does not tell: who
// waits for a tick need not look at each.
func (l *Ledger) WatchBegins(nudge func()) (stop func()) {
	return l.c.sub.watch(l.keys.channel+beginsChannel, nudge)
}

// beginsChannel is what a job's channel of begins is called beyond its channel. No
// name has braces, so it is no other job's channel.
const beginsChannel = "{begins}"

// ask runs a script or command that answers a list and may be repeated.
func (l *Ledger) ask(ctx context.Context, req wire.Request) ([]any, error) {
	if ctx == nil {
		return nil, refuse("ctx", "a context", "%s", "nil")
	}
	answer, err := l.c.insist(ctx, req, l.terms.timeout(), 2*l.terms.timeout())
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok || len(list) == 0 && req.IsScript() {
		return nil, req.OddReply(answer)
	}
	return list, nil
}
