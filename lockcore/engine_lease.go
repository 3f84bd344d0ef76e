package lockcore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
)

// givenKind is a mutex that another package renews and gives back by scripts of its own.
type givenKind struct {
	mutexKind
	given engine.Kind
}

func (k givenKind) name() string { return k.given.Label() }

func (k givenKind) renewal(a *attempt) wire.Request {
	if r, ok := k.given.Renewal(a.shown()); ok {
		return r
	}
	return k.mutexKind.renewal(a)
}

func (k givenKind) leave(a *attempt, bury bool) wire.Request {
	if r, ok := k.given.Release(a.shown()); ok {
		return r
	}
	return k.mutexKind.leave(a, bury)
}

// shown is what the packages above know of an attempt.
func (a *attempt) shown() engine.Attempt {
	return engine.Attempt{ID: a.c.attemptID(a.number), Value: a.value, TTL: a.terms.ttl, Bury: max(a.terms.ttl, tombTTL)}
}

func (e *nameEngine) Lock(ctx context.Context, k engine.Kind) (engine.Lease, error) {
	m := &Mutex{c: e.c, keys: e.keys, terms: e.terms, kind: mutexKind{}}
	if k != nil {
		m.kind = givenKind{given: k}
	}
	lease, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	return givenLease{lease}, nil
}

func (e *nameEngine) Hold(ctx context.Context, k engine.Kind, acquire func(engine.Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (engine.Lease, error) {
	a := e.c.newAttempt(givenKind{given: k}, e.keys, e.terms, false)
	if !e.c.enlist(a) {
		return nil, ErrClosed
	}
	lease, err := e.hold(ctx, a, acquire(a.shown()), read)
	if err != nil {
		return nil, err
	}
	return givenLease{lease}, nil
}

// hold asks until there is an answer, and makes a lease of a grant. Otherwise it ends the
// attempt.
func (e *nameEngine) hold(ctx context.Context, a *attempt, r wire.Request, read func(any) (uint64, bool, error)) (*Lease, error) {
	retry := e.c.newRetry(e.terms.timeout(), 2*e.terms.timeout())
	var (
		t0      time.Duration
		answer  any
		token   uint64
		granted bool
		refusal error
		late    int
	)
	err := retry.Do(ctx, wire.MayRetry, func() (err error) {
		for {
			t0 = e.c.clock.Now()
			answer, err = e.c.wire.Send(ctx, r, retry.Timeout())
			if wire.MayBeApplied(err) {
				a.open.Store(true)
				a.owes.Store(true)
			}
			if err != nil {
				return err
			}
			token, granted, refusal = read(answer)
			if granted {
				a.owes.Store(true)
			}
			if !granted || e.c.clock.Now() < t0+e.terms.times.Valid {
				return nil
			}
			// A reply without validity left never starts work. Another try is made if
			// it has its full time.
			if late++; late == 3 || retry.Timeout() != e.terms.timeout() {
				refusal = errors.Join(ErrLeaseExpired, errors.New("lockcore: the server's answers take longer than the lease is valid"))
				return nil
			}
		}
	})
	switch {
	case err != nil:
		e.c.forget(a)
		return nil, err
	case !granted || refusal != nil:
		e.c.forget(a)
		return nil, cmp.Or(refusal, r.OddReply(answer))
	}
	return e.c.hold(ctx, a, token, t0)
}

// givenLease is a Lease with what only the packages above need of it.
type givenLease struct{ *Lease }

func (l givenLease) Value() string { return l.a.value }

func (l givenLease) Err() error { return l.life.Err() }

func (l givenLease) Overdue() time.Duration { return l.life.Overdue() }

func (l givenLease) Abort(reason error) bool {
	if l.life.Err() != nil || !l.end(errors.Join(ErrLeaseExpired, reason)) {
		return false
	}
	l.c.dismiss(l.Lease)
	return true
}

func (l givenLease) Lose() {
	if l.end(ErrLeaseLost) {
		l.c.noteLoss(l.Lease, ErrLeaseLost)
	}
}

func (l givenLease) Finish() {
	if l.end(ErrReleased) {
		l.c.dismiss(l.Lease)
	}
}
