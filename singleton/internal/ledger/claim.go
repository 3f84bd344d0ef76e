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
	Attempt     int       // 1, or more if the run was taken over
	Now         time.Time // server's time of the grant
	DeadHolder  string    // of the previous attempt, if its holder died
	LastSuccess time.Time // newest tick that succeeded
	// Unsure means that an attempt may have taken effect: its holder died, or did
	// not know the outcome. A failure is then recorded as OutcomeUnknown. Set Unsure if this
	// attempt ends so. Abandon stores it for the next holder.
	Unsure  bool
	Request *Action // nil for a scheduled run
	Payload string  // of TriggerAt; never logged

	failure string        // see Fail
	began   time.Duration // by Elapsed
	took    string        // ms of the work, once it has returned
}

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
	work   atomic.Int32 // progress of the work
	ended  atomic.Pointer[ended]

	canceled context.Context // ends with a *CanceledError
	cancel   context.CancelCauseFunc
}

func (l *Ledger) newRunLease(id RunID) *runLease {
	k := &runLease{Kind: l.lock.Client().Mutex(), ledger: l, tick: id.text()}
	k.ended.Store(&ended{reason: reasonClosed})
	k.canceled, k.cancel = context.WithCancelCause(context.Background())
	return k
}

// ended says how the attempt ended, for Release.
type ended struct {
	reason string
	took   string        // ms; empty means until now
	wait   time.Duration // before the next attempt
}

// Noticed implements lock.Noticer: the run is canceled. The work ends even if the server does not name the operator.
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

// readCancel reads whether the run is canceled.
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

// Cancel cancels the work if the run is canceled in a state of its ledger. The answer to a renewal has the same effect.
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

// Recorded returns the outcome that Complete records: OutcomeUnknown for a failure of an Unsure run.
func (r *Claim) Recorded(outcome string) string {
	if r.Unsure && outcome == OutcomeFailed {
		return OutcomeUnknown
	}
	return outcome
}

// Returned returns how long the work took. Complete and Abandon store that instead of
// the time at which the server executes their request, which may be much later.
func (r *Claim) Returned() time.Duration {
	took := r.ledger.lock.Client().Elapsed() - r.began
	r.took = decimal(took.Milliseconds())
	return took
}

// Fail sets the error of the attempt. Abandon stores it.
func (r *Claim) Fail(reason string) { r.failure = clip(reason) }

// Abandon releases the run, so that any replica can claim it after wait. began means
// that the work had begun, so that the attempt counts: as failed, or as perhaps effective if Unsure is set, or if the
// Claim ends with Unlock or Client.Close. Abandon stores the error of Fail, and returns like Unlock.
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

// commit sends a script until there is a reply or ctx ends. The effect of the script must survive a failover. The answer
// 0 means that the script had no effect and needs no replicas.
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
