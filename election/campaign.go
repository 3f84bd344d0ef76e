package election

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A leadership is one term of this replica, from the campaign to the release. It is the lock.Kind
// of its attempt: that of a mutex, whose renewals also write the record when the work has begun. The package
// documentation has its states.
type leadership struct {
	lock.Kind
	e     *Election
	lease *lock.Lease // after the grant

	begun      atomic.Pointer[time.Duration] // start of the work, by lock.Client.Elapsed; nil before it
	unrecorded atomic.Bool                   // a renewal could not write the record, which was logged

	stop     context.CancelCauseFunc   // ends the work by choice; nil: the work has not begun
	chosen   atomic.Pointer[time.Time] // when that was; nil: not yet
	resigned atomic.Bool               // the choice was Resign or TransferTo
	returned atomic.Bool               // OnStartedLeading has returned
	uncount  func()                    // removes this leadership from the metrics
	request  string                    // the ID of the newest request of an operator; guarded by LeaderElector.mu
	released chan struct{}
	err      error // of the release; read it after released
}

// prepare returns an error if campaign may wait although this candidate could never lead, or not be seen: a
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

// campaign waits in the queue until this candidate has the lock. Its errors are those of lockcore.Mutex.Lock.
func (e *Election) campaign(ctx context.Context) (*leadership, error) {
	l := &leadership{Kind: e.lock.Client().Recorded(e.keys.leader, e.keys.channel), e: e, released: make(chan struct{})}
	var err error
	if l.lease, _, err = e.lock.Lock(ctx, l); err != nil {
		return nil, e.failed("campaign", err)
	}
	return l, nil
}

func (l *leadership) Err() error { return l.lease.Err() }

// begin makes the renewals write the record, and sends the first one.
func (l *leadership) begin() {
	now := l.e.lock.Client().Elapsed()
	l.begun.Store(&now)
	l.lease.RenewNow()
}

// label is the kind of an election's lease in metrics.
const label = "election"

func (l *leadership) Label() string { return label }

func (l *leadership) Renewal(a *lock.Attempt) wire.Request {
	begun := l.begun.Load()
	if begun == nil {
		return l.Kind.Renewal(a)
	}
	return l.e.store.renewal(a, l.lease.Token(), (l.e.lock.Client().Elapsed() - *begun).Milliseconds())
}

var errUnrecorded = errors.New("election: its key has another type or a newer schema, or a right is missing")

// Noticed implements lock.Noticer: the record is new or asks the leader to resign, and watchers read it, as messages
// may be lost. Or it cannot be written.
func (l *leadership) Noticed(_ *lock.Attempt, answer int64) {
	if answer == 2 {
		l.e.nudge()
	} else if !l.unrecorded.Swap(true) {
		log := l.e.lock.Client().Logger()
		log.Error(errUnrecorded, "this replica leads, and the leader record cannot be written", "election", l.e.name)
	}
}
