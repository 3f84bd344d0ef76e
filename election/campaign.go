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

// A leadership is one term of this replica, from the campaign to the release. It is the lock.Kind
// of its attempt: that of a mutex, whose renewals also extend the record after the claim. The package documentation
// has its states.
type leadership struct {
	lock.Kind
	e     *Election
	lease *lock.Lease // after the grant

	led     atomic.Pointer[led] // nil before the claim
	early   chan any            // the reply to a claim that was sent before the grant was confirmed; nil: none
	unbegun atomic.Bool         // the record may have been written, and the term has not begun

	stop     context.CancelCauseFunc   // ends the work by choice; nil: the work has not begun
	chosen   atomic.Pointer[time.Time] // when that was; nil: not yet
	resigned atomic.Bool               // the choice was Resign or TransferTo
	returned atomic.Bool               // OnStartedLeading has returned
	uncount  func()                    // removes this leadership from the metrics
	request  string                    // the ID of the newest request of an operator; guarded by LeaderElector.mu
	released chan struct{}
	err      error // of the release; read it after released
}

// led is the term as the renewals write it into the record.
type led struct {
	term
	claims bool // on a quorum: the term has not begun
}

// prepare returns an error if campaign may wait although this candidate could never lead: a
// right is missing that only a leader needs, or the record cannot be written.
func (e *Election) prepare(ctx context.Context) error {
	err := e.lock.CheckRights(ctx, lock.NeedsOf(e.needs))
	if q := e.lock.Client().Quorum(); q != nil {
		q.Admit() // new servers have no record to look at
	}
	if err == nil {
		if _, err = e.store.look(ctx); errors.Is(err, errSpoilt) {
			return nil
		}
	}
	return e.failed("campaign", err)
}

// campaign waits in the queue until this candidate leads and the record is written. Its
// errors are those of lockcore.Mutex.Lock.
func (e *Election) campaign(ctx context.Context) (*leadership, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an early claim that nobody waits for
	l := &leadership{Kind: e.lock.Client().Mutex(), e: e, released: make(chan struct{})}
	var err error
	if l.lease, _, err = e.lock.Lock(ctx, l); err != nil {
		return nil, e.failed("campaign", err)
	}
	l.unbegun.Store(true)
	bound, unbind := l.lease.Bind(ctx)
	defer unbind()
	if err = e.store.claim(bound, l); err == nil {
		err = l.lease.Err() // the reply took too long
	}
	if err != nil {
		// The lock is held and nobody leads, so release it. If there is no reply soon, the
		// release continues in the background.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.lock.Timeout())
		defer cancel()
		_ = l.lease.Unlock(ctx)
		return nil, e.failed("campaign", lockcore.ErrNotAcquired, err)
	}
	l.unbegun.Store(false)
	e.nudge() // its message may be lost
	return l, nil
}

func (l *leadership) Err() error { return l.lease.Err() }

// release releases the lock to the next candidate. If there is none, it records that nobody
// leads. It returns like Lease.Unlock. The work of the leader must have ended.
func (l *leadership) release(ctx context.Context) error {
	if err := l.lease.Unlock(ctx); err != nil {
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
	r := e.scripts.vacate.Call(wire.Keys(e.keys.lock, e.keys.leader), l.lease.Token(), e.keys.channel)
	if err := e.store.vacate(ctx, r); err != nil {
		wire.Log(e.lock.Client().Logger().V(1), err, "leader record still names the leader that resigned", "election", e.name)
	}
	return nil
}

// withdraw is release before the work of the leader has begun: the term does not count.
func (l *leadership) withdraw(ctx context.Context) error {
	l.unbegun.Store(true)
	return l.lease.Unlock(ctx)
}

// label is the kind of an election's lease in metrics.
const label = "election"

func (l *leadership) Label() string { return label }

func (l *leadership) Renewal(a *lock.Attempt) wire.Request {
	if now := l.led.Load(); now != nil {
		return l.e.store.renewal(a, now)
	}
	return l.Kind.Renewal(a)
}

func (l *leadership) Unbegun() (record, channel string) {
	if !l.unbegun.Load() {
		return "", ""
	}
	return l.e.keys.leader, l.e.keys.channel
}

// Noticed implements lock.Noticer: the record asks the leader to resign. Watchers of the record
// get the request.
func (l *leadership) Noticed(*lock.Attempt) { l.e.nudge() }
