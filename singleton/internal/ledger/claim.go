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

// A Claim is the right to one run of a job, as a lease. The caller does the work, and then calls Complete or Abandon. A
// Claim that ends with Unlock counts as Unsure. Cancel, Canceled, OnCancel and the methods of Lease may be called
// concurrently; the other methods must be called one at a time.
type Claim struct {
	*lock.Lease
	ledger *Ledger
	run    *runLease
	RunID
	Attempt     int       // number of this attempt, from 1
	Now         time.Time // server's time of the grant
	DeadHolder  string    // holder of the previous attempt, if it died
	LastSuccess time.Time // newest tick that succeeded
	// Unsure means that an attempt may have taken effect: its holder died, or did not know the outcome. A failure is
	// then recorded as OutcomeUnknown. The caller sets Unsure if this attempt ends like that. Abandon stores it for the
	// next holder.
	Unsure  bool
	Request *Action // nil for a scheduled run
	Payload string  // argument of TriggerAt; never logged

	failure string        // error of the attempt: see Fail
	began   time.Duration // begin of the attempt, by Elapsed
	took    string        // duration of the work (ms); empty until it has returned
}

// The progress of the work when a run is released, as job_abandon.lua expects it.
const (
	workNotBegun = iota
	workFailed
	workInDoubt // it may have taken effect
)

// A runLease is the kind of lease that an attempt has: it says how the lease is renewed and released.
type runLease struct {
	lock.Kind
	ledger *Ledger
	tick   string       // key of the run
	work   atomic.Int32 // progress of the work
	ending atomic.Pointer[ending]

	canceled context.Context // ends with a *CanceledError
	cancel   context.CancelCauseFunc
}

func (l *Ledger) newRunLease(id RunID) *runLease {
	k := &runLease{Kind: l.lock.Client().Mutex(), ledger: l, tick: id.text()}
	k.ending.Store(&ending{reason: reasonClosed})
	k.canceled, k.cancel = context.WithCancelCause(context.Background())
	return k
}

// An ending says how the attempt ended, for Release.
type ending struct {
	reason string
	took   string        // duration of the work (ms); empty if it ends now
	wait   time.Duration // before the next attempt
}

// Noticed implements lock.Noticer: a reply to a renewal says that the run is canceled. The work ends even if the
// operator cannot be read.
func (k *runLease) Noticed(a *lock.Attempt, _ int64) {
	if k.canceled.Err() != nil {
		return
	}
	read := func(ctx context.Context) {
		if err := k.readCancel(ctx, a.Value()); err != nil {
			k.cancel(&CanceledError{})
		}
	}
	if !k.ledger.lock.Client().Background(read) {
		k.cancel(&CanceledError{})
	}
}

// readCancel reads who canceled the run, and ends the work with that cause.
func (k *runLease) readCancel(ctx context.Context, me string) error {
	req := wire.Command("hget", k.ledger.keys.job, "open:"+k.tick).On(k.ledger.keys.job)
	answer, err := k.ledger.lock.Ask(ctx, req)
	if err != nil || answer == nil {
		return err
	}
	var record struct {
		Run    string
		Cancel *Action
	}
	if err := json.Unmarshal([]byte(wire.Text(answer)), &record); err != nil {
		return req.OddReply(answer)
	}
	if record.Run == me && record.Cancel != nil {
		k.cancel(record.Cancel.cause())
	}
	return nil
}

// Cancel ends the work if open, which the ledger has, is this run and was canceled. The reply to a renewal does so,
// too.
func (r *Claim) Cancel(open OpenRun) {
	if open.RunID == r.RunID && open.Token == r.Token() && open.Canceled != nil {
		r.run.cancel(open.Canceled.cause())
	}
}

// Canceled returns a *CanceledError if an operator has canceled the run, otherwise nil. The lease
// remains.
func (r *Claim) Canceled() error { return context.Cause(r.run.canceled) }

// OnCancel calls f with the result of Canceled, on a goroutine of its own, when the run is canceled.
// stop works like the stop of context.AfterFunc.
func (r *Claim) OnCancel(f func(cause error)) (stop func() bool) {
	return context.AfterFunc(r.run.canceled, func() { f(r.Canceled()) })
}

func (k *runLease) Label() string { return "run" }

func (k *runLease) Renewal(a *lock.Attempt) wire.Request {
	return k.ledger.scripts.renew.Call(wire.Keys(k.ledger.keys.job), a.Value(), k.tick, a.TTL().Milliseconds())
}

// Release abandons the run, which counts as an attempt if its work had begun.
func (k *runLease) Release(a *lock.Attempt, _ bool) wire.Request {
	keys, end := k.ledger.keys, k.ending.Load()
	return k.ledger.scripts.abandon.Call(wire.Keys(keys.job, keys.tomb(a.ID())),
		a.Value(), k.tick, k.work.Load(), a.TombTTL().Milliseconds(), end.reason, end.took, end.wait.Milliseconds(), keys.channel)
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

// Recorded returns the outcome that Complete records: OutcomeUnknown for a failure of an Unsure run.
func (r *Claim) Recorded(outcome string) string {
	if r.Unsure && outcome == OutcomeFailed {
		return OutcomeUnknown
	}
	return outcome
}

// Returned returns how long the work took. It is called when the work returns. Complete and Abandon store this end
// instead of the time at which the server executes their request, which may be much later.
func (r *Claim) Returned() time.Duration {
	took := r.ledger.lock.Client().Elapsed() - r.began
	r.took = decimal(took.Milliseconds())
	return took
}

// Fail sets the error of the attempt. Abandon stores it.
func (r *Claim) Fail(reason string) { r.failure = clip(reason) }

// Abandon releases the run, so that any replica can claim it after wait. The attempt counts if its work had begun: as
// failed or, with Unsure, as perhaps effective. Abandon stores the error of Fail, and returns like Unlock.
func (r *Claim) Abandon(ctx context.Context, began bool, wait time.Duration) error {
	r.run.ending.Store(&ending{cmp.Or(r.failure, reasonClosed), r.took, wait})
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

// commit sends a script until there is a reply and enough replicas have its effect, or until ctx ends. With the answer
// 0, the script had no effect, so the replicas do not matter.
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
