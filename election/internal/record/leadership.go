package record

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Leadership is the right to lead for one term: a lease, and the number of the term.
// End it with Resign.
type Leadership struct {
	engine.Lease
	e *Election

	// Term is how many leaderships the election has had, this one included, as long as
	// somebody led at least once a week and the server kept its data. It is for people:
	// the Token orders two leaders for a resource.
	Term uint64
	// Since is when the term began, on the server's clock.
	Since time.Time
}

// Campaign waits in the queue until this candidate leads and the record says so. It
// fails as lockcore.Mutex.Lock does.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	const op = "campaign"
	k := &kind{e: e}
	lease, err := e.engine.Lock(ctx, k)
	if err != nil {
		return nil, opError(op, e.name, err)
	}
	l := &Leadership{Lease: lease, e: e}
	err = l.claim(ctx, k)
	if cause := l.Err(); err == nil && cause != nil {
		err = errors.Join(lockcore.ErrNotAcquired, cause) // the answer took too long
	}
	if err != nil {
		// The lock is held and nobody leads: release it, whatever else fails. If that is
		// not answered soon, it continues in the background.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.engine.Timeout())
		defer cancel()
		_ = lease.Unlock(ctx)
		return nil, opError(op, e.name, err)
	}
	return l, nil
}

// claim writes the record, for as long as the lease is valid.
func (l *Leadership) claim(ctx context.Context, k *kind) error {
	e := l.e
	r := e.scripts.claim.Call([]string{e.keys.lock, e.keys.leader},
		l.Value(), e.engine.TTL().Milliseconds(), l.Token(), e.Identity(), e.encoded, e.keys.channel)
	bound, stop := l.Bind(ctx)
	defer stop()
	answer, err := e.engine.Persist(bound, r)
	if err != nil {
		return errors.Join(lockcore.ErrNotAcquired, context.Cause(bound), err)
	}
	return l.begin(k, r, answer)
}

// begin takes the answer of leader_claim.
func (l *Leadership) begin(k *kind, r wire.Request, answer any) error {
	list, _ := answer.([]any)
	switch {
	case len(list) == 2:
		term, ok1 := list[0].(int64)
		since, ok2 := list[1].(int64)
		if !ok1 || !ok2 || term < 1 {
			break
		}
		l.Term, l.Since = uint64(term), time.UnixMilli(since).UTC()
		k.led.Store(&led{token: l.Token(), term: term, since: since})
		l.e.note(Record{
			Holder: l.e.Identity(), Token: l.Token(), Term: l.Term, Acquired: l.Since, Renewed: l.Since,
			Lease: l.e.engine.TTL(), Metadata: l.e.metadata,
		})
		return nil
	case len(list) == 1 && list[0] == int64(0):
		l.Lose()
		return errors.Join(lockcore.ErrNotAcquired, lockcore.ErrLeaseLost)
	case len(list) == 1 && list[0] == int64(-1):
		return errors.Join(lockcore.ErrNotAcquired, lockcore.ErrNewerSchema)
	}
	return r.OddReply(answer)
}

// Resign releases the lock to the next candidate, and if there is none, writes down that
// nobody leads. It returns like Lease.Unlock. The work of the leader must be over.
func (l *Leadership) Resign(ctx context.Context) error {
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	// After the hand-over, which it must not delay. One try; if it fails, the record
	// grows old as after a death.
	e := l.e
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // as Unlock does
	}
	ctx, cancel := context.WithTimeout(ctx, e.engine.Timeout())
	defer cancel()
	r := e.scripts.vacate.Call([]string{e.keys.lock, e.keys.leader}, l.Token(), e.keys.channel)
	if _, err := e.engine.Once(ctx, r); err != nil {
		e.engine.Logger().V(1).Info("leader record still names the leader that resigned", "election", e.name, "err", err)
	}
	return nil
}

// label is the kind of an election's lease in metrics.
const label = "election"

// kind is the attempt of a candidate: a mutex's, whose renewals also keep the record once
// there is one.
type kind struct {
	e   *Election
	led atomic.Pointer[led]
}

// led is what the record says of a term besides what the Election knows.
type led struct {
	token       uint64
	term, since int64
}

func (k *kind) Label() string { return label }

func (k *kind) Renewal(a engine.Attempt) (r wire.Request, ok bool) {
	now := k.led.Load()
	if now == nil {
		return r, false
	}
	e := k.e
	return e.scripts.renew.Call([]string{e.keys.lock, e.keys.leader},
		a.Value, a.TTL.Milliseconds(), now.token, e.Identity(), e.encoded, now.term, now.since, e.keys.channel), true
}

func (k *kind) Release(engine.Attempt) (r wire.Request, ok bool) { return r, false }
