package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A term is one leadership of this replica, from the campaign to the release. The package
// documentation has its states. It is a lock.Kind: a mutex whose renewals also write the record.
type term struct {
	lock.Kind
	e     *Election
	lease *lock.Lease // nil before the grant

	begun      atomic.Pointer[time.Duration] // start of the work, by lock.Client.Elapsed
	unrecorded atomic.Bool                   // a failure to write the record was logged

	stop      context.CancelCauseFunc   // ends the work by choice
	stoppedAt atomic.Pointer[time.Time] // call of stop, or end of Run's context
	resigned  atomic.Bool               // resign was called
	returned  atomic.Bool               // OnStartedLeading has returned
	uncount   func()                    // removes this term from the metrics
	request   string                    // ID of the operator's newest request; guarded by LeaderElector.mu
	released  chan struct{}
	err       error // of the release; valid after released
}

// prepare returns an error if a right is missing that only a leader needs, or if the record cannot be written.
// Otherwise, the candidate would wait in the queue, and fail as the leader.
func (e *Election) prepare(ctx context.Context) error {
	err := e.lock.CheckRights(ctx, lock.NeedsOf(e.needs))
	if q := e.lock.Client().Quorum(); q != nil {
		q.Admit() // lets in new servers, which otherwise do not count for readers
	}
	if err == nil {
		if _, err = e.read(ctx); errors.Is(err, errSpoilt) {
			return nil
		}
	}
	return e.opError("campaign", err)
}

// campaign waits in the queue until this candidate has the lock. It returns the errors of lockcore.Mutex.Lock.
func (e *Election) campaign(ctx context.Context) (*term, error) {
	t := &term{Kind: e.lock.Client().Recorded(e.keys.leader, e.keys.channel), e: e, released: make(chan struct{})}
	var err error
	if t.lease, _, err = e.lock.Lock(ctx, t); err != nil {
		return nil, e.opError("campaign", err)
	}
	return t, nil
}

func (t *term) Err() error { return t.lease.Err() }

// bind returns the context of the work, and chosen, which is done only when the work ends by choice.
func (t *term) bind(run context.Context) (chosen, ctx context.Context, end func()) {
	chosen, t.stop = context.WithCancelCause(run)
	ctx, unbind := t.lease.Bind(chosen)
	return chosen, ctx, func() {
		unbind()
		t.stop(nil)
	}
}

// begin makes the renewals write the record, and sends the first one.
func (t *term) begin() {
	now := t.e.lock.Client().Elapsed()
	t.begun.Store(&now)
	t.lease.RenewNow()
}

func (t *term) Label() string { return leaseLabel }

func (t *term) Renewal(a *lock.Attempt) wire.Request {
	begun := t.begun.Load()
	if begun == nil {
		return t.Kind.Renewal(a)
	}
	return t.e.renewal(a, t.lease.Token(), (t.e.lock.Client().Elapsed() - *begun).Milliseconds())
}

var errUnrecorded = errors.New("election: its key has another type or a newer schema, or a right is missing")

// Noticed implements lock.Noticer. After the answer 2, the record is new or has a request to resign. Watchers read
// it, because the message may be lost. After any other answer, the record cannot be written.
func (t *term) Noticed(_ *lock.Attempt, answer int64) {
	if answer == 2 {
		t.e.readSoon()
	} else if !t.unrecorded.Swap(true) {
		log := t.e.lock.Client().Logger()
		log.Error(errUnrecorded, "this replica leads, and the leader record cannot be written", "election", t.e.name)
	}
}

// promote moves the first candidate with the identity to the head of the queue. The error is
// ErrNotHeld if the term has ended.
func (t *term) promote(ctx context.Context, identity string) error {
	if cause := t.Err(); cause != nil {
		return errors.Join(lockcore.ErrNotHeld, cause)
	}
	if err := t.e.refuseQuorum("TransferTo", "the candidates on several servers have no queue. Resign lets any of them lead"); err != nil {
		return err
	}
	return t.lease.Promote(ctx, identity, ErrNoCandidate)
}

func (t *term) resign(cause error) {
	t.resigned.Store(true)
	t.stop(cause)
}

func (t *term) wait(ctx context.Context) error {
	select {
	case <-t.released:
		return t.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("election: leadership is released as soon as OnStartedLeading has returned"))
	}
}
