package ledger

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Claim is the right to run one tick of a job, as a lease. Its work ends with
// Complete, or with Abandon; a Claim that ends by Unlock counts as Unsure.
type Claim struct {
	engine.Lease
	ledger  *Ledger
	kind    *kind
	Tick    time.Time // the scheduled instant, UTC
	Attempt int       // 1, or more if the tick was taken over
	// LastSuccess is the newest tick that succeeded; zero: none.
	LastSuccess time.Time
	// Unsure: nobody knows whether an earlier attempt had an effect; its holder died,
	// or could not tell. A failure is then recorded as OutcomeUnknown. Set it where an
	// attempt of this Run has ended like that: Abandon hands it on to the next holder.
	Unsure bool

	raised uint64 // the token that Raise has brought; 0: the claim's counts
}

// label is the kind of a run's lease in metrics.
const label = "run"

// How far the work of a run had come that is given up, as job_abandon.lua wants it.
const (
	workNotBegun = iota
	workFailed
	workInDoubt // its effect may have come about
)

// kind is the attempt at a run: the hold on a tick.
type kind struct {
	ledger *Ledger
	tick   string
	work   atomic.Int32 // how far the work has come
}

func (k *kind) Label() string { return label }

func (k *kind) Renewal(a engine.Attempt) (wire.Request, bool) {
	return k.ledger.scripts.renew.Call([]string{k.ledger.keys.open}, a.Value, k.tick, a.TTL.Milliseconds()), true
}

// Release gives the run up; if its work had begun, that counts as an attempt.
func (k *kind) Release(a engine.Attempt) (wire.Request, bool) {
	keys := k.ledger.keys
	return k.ledger.scripts.abandon.Call([]string{keys.job, keys.open, keys.tomb(a.ID)},
		a.Value, k.tick, k.work.Load(), a.Bury.Milliseconds()), true
}

// Complete records how the run ended, OutcomeSucceeded or OutcomeFailed with a
// reason (see Unsure), and ends its lease. It may be called although the lease has ended: the
// outcome is accepted unless the tick was taken over (ErrSuperseded). If nobody
// answers, or the server is short of memory or replicas, it asks again until ctx
// ends; the lease is renewed meanwhile. An error that is lockcore.ErrUnknown means that it
// may have been recorded. Repeated after that, or although it was accepted, it is
// answered the same, as long as the history keeps the run.
func (r *Claim) Complete(ctx context.Context, outcome, reason string) error {
	const op = "complete"
	l := r.ledger
	if outcome != OutcomeSucceeded && outcome != OutcomeFailed {
		return opError(op, l.name, refuse("outcome", `"succeeded" or "failed"`, "%q", outcome))
	}
	if r.Unsure && outcome == OutcomeFailed {
		outcome = OutcomeUnknown
	}
	s := l.scripts.complete
	req := s.Call([]string{l.keys.job, l.keys.open, l.keys.runs},
		r.Value(), decimal(r.Tick.UnixMilli()), outcome, clip(reason), l.cfg.KeepRuns, strconv.FormatUint(r.Token(), 10))
	n, err := l.repeat(ctx, req)
	if err != nil {
		return opError(op, l.name, err)
	}
	r.Finish()
	if n == 0 {
		return opError(op, l.name, ErrSuperseded)
	}
	return nil
}

// Retry counts another attempt of this run on this holder, after a failure that
// may pass; Attempt is then one more, the token stays. False: the tick has no
// attempts left. The errors are ErrSuperseded and what Complete may fail with.
func (r *Claim) Retry(ctx context.Context) (bool, error) {
	const op = "retry"
	l := r.ledger
	if r.Attempt >= l.cfg.MaxAttempts {
		return false, nil
	}
	s := l.scripts.retry
	req := s.Call([]string{l.keys.job, l.keys.open}, r.Value(), decimal(r.Tick.UnixMilli()), r.Attempt)
	n, err := l.repeat(ctx, req)
	switch {
	case err != nil:
		return false, opError(op, l.name, err)
	case n == 0:
		return false, opError(op, l.name, ErrSuperseded)
	}
	r.Attempt++
	return true, nil
}

// Token is the fencing token of the run: the claim's, or the one of the last Raise.
func (r *Claim) Token() uint64 { return cmp.Or(r.raised, r.Lease.Token()) }

// greatestSeen is the greatest token that another can be made above: scripts count in
// doubles. By the clock it is that of the year 2255.
const greatestSeen = 1<<53 - 2

// Raise gives the run a new token, greater than seen and than every earlier one of the
// job, and so has every later claim. It is for a run whose resource has refused its
// token since it has seen a greater one, although nobody else holds the run: that
// token was made by a server whose clock was ahead, and the counter was lost since.
// The error is ErrSuperseded if another has the run, or what Complete may fail with;
// the token is then the one before. Nobody else may use the Run meanwhile.
func (r *Claim) Raise(ctx context.Context, seen uint64) error {
	const op = "raise"
	l := r.ledger
	if seen > greatestSeen {
		return opError(op, l.name, refuse("seen", "a token below 2^53-1", "%d", seen))
	}
	s := l.scripts.raise
	req := s.Call([]string{l.keys.open, l.keys.fence}, r.Value(), decimal(r.Tick.UnixMilli()), strconv.FormatUint(seen, 10))
	answer, err := l.ask(ctx, req)
	switch {
	case err != nil:
		return opError(op, l.name, err)
	case len(answer) == 1 && answer[0] == int64(0):
		return opError(op, l.name, ErrSuperseded)
	case len(answer) != 2:
		return opError(op, l.name, s.OddReply(answer))
	}
	token, err := strconv.ParseUint(wire.Text(answer[1]), 10, 64)
	if err != nil || token <= seen {
		return opError(op, l.name, s.OddReply(answer))
	}
	r.raised = token
	return nil
}

// Abandon gives the run up, so that another replica takes the tick at once.
// began says that the work had begun, so that this counts as an attempt; it has
// failed then, or may have had an effect if Unsure is set. It may have, too, if a Run
// ends without a word, by Unlock or Client.Close. Abandon returns like Unlock.
func (r *Claim) Abandon(ctx context.Context, began bool) error {
	switch {
	case !began:
		r.kind.work.Store(workNotBegun)
	case r.Unsure:
		r.kind.work.Store(workInDoubt)
	default:
		r.kind.work.Store(workFailed)
	}
	return r.Unlock(ctx)
}

// repeat runs a script that answers a number until it is answered or ctx ends.
func (l *Ledger) repeat(ctx context.Context, r wire.Request) (int64, error) {
	answer, err := l.engine.Persist(ctx, r)
	return r.Number(answer, err)
}

// clip keeps an error's text to what a ledger should hold.
func clip(reason string) string {
	const most = 500
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	return reason
}
