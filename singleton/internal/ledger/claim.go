package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Claim is the right to one run of a job, as a lease. Its work ends with Complete or
// Abandon. A Claim that ends with Unlock counts as Unsure. Cancel, Canceled, OnCancel and the
// methods of Lease may be called concurrently; the other methods must be called one at a time.
type Claim struct {
	*lock.Lease
	ledger *Ledger
	run    *runLease
	RunID
	Attempt int       // 1, or more if the run was taken over
	Now     time.Time // by the server's clock, when it granted the claim
	// Dead is the holder that has died in the attempt before this one; empty: none has, or that is not known.
	Dead string
	// LastSuccess is the newest tick that succeeded; zero: none.
	LastSuccess time.Time
	// Unsure means that an earlier attempt may have taken effect: its holder died, or did
	// not know the outcome. A failure is then recorded as OutcomeUnknown. Set it if an
	// attempt of this Claim ends like that. Abandon stores it for the next holder.
	Unsure bool
	// Asked is the request of an operator that has opened the run; nil: it is scheduled.
	Asked   *Act
	Payload string // of TriggerAt; it is never logged

	// of the attempt: see Fail and Returned
	failure string
	began   time.Duration // by Elapsed
	took    string        // ms; empty: the work has not returned
}

// label is the kind of the lease in metrics.
const label = "run"

// The progress of the work of an abandoned run, as job_abandon.lua expects it.
const (
	workNotBegun = iota
	workFailed
	workInDoubt // it may have taken effect
)

// A runLease is the lease of an attempt. It is a lock.Kind.
type runLease struct {
	lock.Kind
	ledger *Ledger
	tick   string       // as stored
	work   atomic.Int32 // the progress of the work
	ended  atomic.Pointer[ended]

	canceled context.Context // ends with a *CanceledError
	cancel   context.CancelCauseFunc
}

// ended is how the attempt ended, for Release.
type ended struct {
	reason string
	took   string        // ms; empty: until now
	wait   time.Duration // before the next attempt
}

// Noticed implements lock.Noticer: the run is canceled. If the server does not say by whom, the
// work ends all the same.
func (k *runLease) Noticed(a *lock.Attempt, _ int64) {
	if k.canceled.Err() != nil {
		return
	}
	look := func(ctx context.Context) {
		if err := k.look(ctx, a.Value()); err != nil {
			k.cancel(&CanceledError{})
		}
	}
	if !k.ledger.lock.Client().Background(look) {
		k.cancel(&CanceledError{})
	}
}

// look reads whether the run is canceled.
func (k *runLease) look(ctx context.Context, me string) error {
	req := wire.Command("hget", k.ledger.keys.job, "open:"+k.tick).On(k.ledger.keys.job)
	answer, err := k.ledger.lock.Ask(ctx, req)
	if err != nil || answer == nil {
		return err
	}
	var record struct {
		Run    string
		Cancel *Act
	}
	if err := json.Unmarshal([]byte(wire.Text(answer)), &record); err != nil {
		return req.OddReply(answer)
	}
	if record.Run == me && record.Cancel != nil {
		k.cancel(record.Cancel.cause())
	}
	return nil
}

// Cancel cancels the work if the run is canceled in a state of its ledger. The answer to a renewal says that as well.
func (r *Claim) Cancel(open OpenRun) {
	if open.RunID == r.RunID && open.Token == r.Token() && open.Canceled != nil {
		r.run.cancel(open.Canceled.cause())
	}
}

// Canceled returns a *CanceledError if an operator has canceled the run, otherwise nil. The lease
// remains.
func (r *Claim) Canceled() error { return context.Cause(r.run.canceled) }

// OnCancel calls f with the result of Canceled, on a goroutine of its own, when that is not nil.
// stop is that of context.AfterFunc.
func (r *Claim) OnCancel(f func(cause error)) (stop func() bool) {
	return context.AfterFunc(r.run.canceled, func() { f(r.Canceled()) })
}

func (k *runLease) Label() string { return label }

func (k *runLease) Renewal(a *lock.Attempt) wire.Request {
	return k.ledger.scripts.renew.Call(wire.Keys(k.ledger.keys.job), a.Value(), k.tick, a.TTL().Milliseconds())
}

// Release abandons the run. If its work had begun, that counts as an attempt.
func (k *runLease) Release(a *lock.Attempt, _ bool) wire.Request {
	keys, ended := k.ledger.keys, k.ended.Load()
	return k.ledger.scripts.abandon.Call(wire.Keys(keys.job, keys.tomb(a.ID())),
		a.Value(), k.tick, k.work.Load(), a.TombTTL().Milliseconds(), ended.reason, ended.took, ended.wait.Milliseconds(), keys.channel)
}

// reasonClosed is recorded for an attempt whose lease ends without Complete and Abandon.
const reasonClosed = "its holder released the run without an outcome"

// Complete records the outcome of the run, OutcomeSucceeded or OutcomeFailed with a reason
// (see Unsure), and ends its lease. It may be called after the end of the lease: the
// outcome is accepted unless another replica has claimed the tick (ErrSuperseded).
//
// If there is no reply, or the server is short of memory or replicas, Complete retries
// until ctx ends. The lease is renewed meanwhile. If the server has recorded the outcome,
// and too few replicas have acknowledged it, Complete retries until the lease would have
// ended. The error then matches lockcore.ErrNotReplicated and lockcore.ErrUnknown: only a
// failover can undo the completion. If the error matches lockcore.ErrUnknown,
// the outcome may have been recorded. A repeated call returns the same result as long as
// the history contains the run.
func (r *Claim) Complete(ctx context.Context, outcome, reason string) error {
	const op = "complete"
	l := r.ledger
	s := l.scripts.complete
	req := s.Call(wire.Keys(l.keys.job, l.keys.runs, l.keys.payloads),
		r.Value(), r.text(), r.Recorded(outcome), clip(reason), l.cfg.KeepRuns, strconv.FormatUint(r.Token(), 10), r.took, l.keys.channel)
	n, err := l.commit(ctx, req)
	if errors.Is(err, lockcore.ErrNotReplicated) {
		n, err = r.replicate(ctx, req, err)
	}
	if err != nil {
		return opError(op, l.name, err)
	}
	r.Finish()
	if n == 0 {
		return opError(op, l.name, ErrSuperseded)
	}
	return nil
}

// replicate sends a completion again until enough replicas have it, until the lease would have
// ended, or until ctx ends. The server has recorded the completion, so the lease is not
// renewed any more.
func (r *Claim) replicate(ctx context.Context, req wire.Request, err error) (n int64, _ error) {
	ctx, cancel := context.WithTimeout(ctx, r.Remaining())
	defer cancel()
	r.Finish()
	for pauses := retry.Pauses(10*time.Millisecond, 500*time.Millisecond); errors.Is(err, lockcore.ErrNotReplicated); {
		if !retry.Sleep(ctx, pauses.NextBackOff(), nil) {
			return 0, errors.Join(lockcore.ErrUnknown, err)
		}
		short := err
		if n, err = r.ledger.commit(ctx, req); err != nil && !errors.Is(err, lockcore.ErrNotReplicated) {
			return 0, errors.Join(lockcore.ErrUnknown, short, err)
		}
	}
	return n, err
}

// Recorded returns the outcome that Complete records: OutcomeUnknown for a failure of a run
// that is Unsure.
func (r *Claim) Recorded(outcome string) string {
	if r.Unsure && outcome == OutcomeFailed {
		return OutcomeUnknown
	}
	return outcome
}

// Returned ends the attempt, and returns how long its work took. Complete and Abandon store that instead of
// the time at which the server executes their request, which may be much later.
func (r *Claim) Returned() time.Duration {
	took := r.ledger.lock.Client().Elapsed() - r.began
	r.took = decimal(took.Milliseconds())
	return took
}

// Fail sets the error of the attempt. Abandon stores it.
func (r *Claim) Fail(reason string) { r.failure = clip(reason) }

// Abandon releases the run, so that any replica can claim the tick after wait. began means
// that the work had begun, so this counts as an attempt. That attempt has failed, or may
// have taken effect if Unsure is set. It may also have taken effect if the Claim ends with
// Unlock or Client.Close. Abandon stores the error of Fail, and returns like Unlock.
func (r *Claim) Abandon(ctx context.Context, began bool, wait time.Duration) error {
	r.run.ended.Store(&ended{cmp.Or(r.failure, reasonClosed), r.took, wait})
	switch {
	case !began:
		r.run.work.Store(workNotBegun)
	case r.Unsure:
		r.run.work.Store(workInDoubt)
	default:
		r.run.work.Store(workFailed)
	}
	return r.Unlock(ctx)
}

// commit sends a script that returns a number until there is a reply or ctx ends. Its effect must survive a failover.
// The answer 0 means that there was none, so it needs no replicas.
func (l *Ledger) commit(ctx context.Context, r wire.Request) (int64, error) {
	answer, err := l.lock.Commit(ctx, r)
	if answer == any(int64(0)) && errors.Is(err, lockcore.ErrNotReplicated) {
		err = nil
	}
	return r.Number(answer, err)
}

// clip limits the length of an error's text in the ledger.
func clip(reason string) string {
	const most = 500
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	return reason
}
