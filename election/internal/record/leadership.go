package record

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Leadership is the right to lead for one term: a lease, and the number of the term.
// End it with Resign.
type Leadership struct {
	*lock.Lease
	e *Election
	k *termLease

	// Term is the number of leaderships that the election has had, including this one. The
	// count starts again if there was no leader for a week, or if the server lost its data.
	// It is for display: a resource must compare the Token.
	Term uint64
	// Since is when the term began, on the server's clock.
	Since time.Time
}

// Prepare returns an error if Campaign may wait although this candidate could never lead: a
// right is missing that only a leader needs, or the record cannot be written.
func (e *Election) Prepare(ctx context.Context) error {
	scripts, err := Needs().Scripts(e.lock.Client())
	if err == nil {
		err = e.lock.CheckRights(ctx, scripts...)
	}
	if err == nil {
		err = e.store.ready(ctx)
	}
	return opError("campaign", e.name, err)
}

// Campaign waits in the queue until this candidate leads and the record is written. Its
// errors are those of lockcore.Mutex.Lock.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	const op = "campaign"
	k := &termLease{Kind: e.lock.Client().Mutex(), e: e}
	defer func() { k.early.end() }()
	lease, err := e.acquire(ctx, k)
	if err != nil {
		return nil, opError(op, e.name, err)
	}
	l := &Leadership{Lease: lease, e: e, k: k}
	k.unbegun.Store(true)
	err = e.store.claim(ctx, l, k)
	if cause := l.Err(); err == nil && cause != nil {
		err = errors.Join(lockcore.ErrNotAcquired, cause) // the reply took too long
	}
	if err != nil {
		// The lock is held and nobody leads, so release it. If there is no reply soon, the
		// release continues in the background.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.lock.Timeout())
		defer cancel()
		_ = lease.Unlock(ctx)
		return nil, opError(op, e.name, err)
	}
	k.unbegun.Store(false)
	return l, nil
}

// acquire waits for the lock. On a quorum, which has no queue, the candidate is listed meanwhile.
func (e *Election) acquire(ctx context.Context, k *termLease) (*lock.Lease, error) {
	defer e.store.list()()
	return e.lock.Lock(ctx, k)
}

// begun takes the number and the beginning of the term.
func (l *Leadership) begun(term, since int64) {
	l.Term, l.Since = uint64(term), time.UnixMilli(since).UTC()
	r := Record{
		Holder: l.e.Identity(), Token: l.Token(), Term: l.Term, Acquired: l.Since, Renewed: l.Since,
		Lease: l.e.lock.TTL(), Metadata: l.e.metadata,
	}
	l.e.store.remember(r)
	l.e.note(r)
}

// Resign releases the lock to the next candidate. If there is none, it records that nobody
// leads. It returns like Lease.Unlock. The work of the leader must have ended.
func (l *Leadership) Resign(ctx context.Context) error {
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	// The record must not delay the handover, so it is written afterwards, with one try. If
	// that fails, the record is out of date, as after the death of a leader.
	e := l.e
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // as Unlock does
	}
	ctx, cancel := context.WithTimeout(ctx, e.lock.Timeout())
	defer cancel()
	r := e.scripts.vacate.Call(wire.Keys(e.keys.lock, e.keys.leader), l.Token(), e.keys.channel)
	if err := e.store.vacate(ctx, r); err != nil {
		wire.Log(e.lock.Client().Logger().V(1), err, "leader record still names the leader that resigned", "election", e.name)
	}
	return nil
}

// Withdraw is Resign before the work of the leader has begun: the term does not count.
func (l *Leadership) Withdraw(ctx context.Context) error {
	l.k.unbegun.Store(true)
	return l.Unlock(ctx)
}

// label is the kind of an election's lease in metrics.
const label = "election"

// A termLease is the attempt of a candidate: that of a mutex, whose renewals also extend the record
// after the claim.
type termLease struct {
	lock.Kind
	e     *Election
	led   atomic.Pointer[led]
	early *earlyClaim // of the last grant that a message announced; nil: none

	unbegun atomic.Bool // the record may have been written, and the term has not begun
}

// Unbegun implements lock.Recorder.
func (k *termLease) Unbegun() (record, channel string) {
	if !k.unbegun.Load() {
		return "", ""
	}
	return k.e.keys.leader, k.e.keys.channel
}

// led contains the fields of the record that differ between terms.
type led struct {
	token       uint64
	term, since int64
	claims      bool // on a quorum: the term has not begun
}

func (k *termLease) Label() string { return label }

func (k *termLease) Renewal(a *lock.Attempt) wire.Request {
	now := k.led.Load()
	if now == nil {
		return k.Kind.Renewal(a)
	}
	return k.e.store.renewal(a, now)
}
