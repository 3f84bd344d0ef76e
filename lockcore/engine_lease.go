package lockcore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
)

// engineKind is a mutex that a package above renews and releases with its own scripts.
type engineKind struct {
	mutexKind
	given engine.Kind
}

func (k engineKind) name() string { return k.given.Label() }

func (k engineKind) renewal(a *attempt) wire.Request {
	if r, ok := k.given.Renewal(a.engineAttempt()); ok {
		return r
	}
	return k.mutexKind.renewal(a)
}

func (k engineKind) leave(a *attempt, bury bool) wire.Request {
	if r, ok := k.given.Release(a.engineAttempt()); ok {
		return r
	}
	return k.mutexKind.leave(a, bury)
}

// engineAttempt returns what the packages above need of an attempt.
func (a *attempt) engineAttempt() engine.Attempt {
	return engine.Attempt{ID: a.c.attemptID(a.number), Value: a.value, TTL: a.terms.ttl, Bury: max(a.terms.ttl, tombTTL)}
}

func (e *nameEngine) Lock(ctx context.Context, k engine.Kind) (engine.Lease, error) {
	m := &Mutex{c: e.c, keys: e.keys, terms: e.terms, kind: mutexKind{}}
	if k != nil {
		m.kind = engineKind{given: k}
	}
	lease, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	return engineLease{lease}, nil
}

func (e *nameEngine) Hold(ctx context.Context, k engine.Kind, acquire func(engine.Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (engine.Lease, error) {
	a := e.c.newAttempt(engineKind{given: k}, e.keys, e.terms, false)
	if !e.c.register(a) {
		return nil, ErrClosed
	}
	lease, err := e.hold(ctx, a, acquire(a.engineAttempt()), read)
	if err != nil {
		return nil, err
	}
	return engineLease{lease}, nil
}

// hold retries a request until it is answered, and returns a lease if it was granted.
// Otherwise it abandons the attempt.
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
			answer, err = e.c.wire.Send(ctx, e.keys.name, r, retry.Timeout())
			if wire.MayBeApplied(err) {
				a.unanswered.Store(true)
				a.mayBeStored.Store(true)
			}
			if err != nil {
				return err
			}
			token, granted, refusal = read(answer)
			if granted {
				a.mayBeStored.Store(true)
			}
			if !granted || e.c.clock.Now() < t0+e.terms.times.Valid {
				return nil
			}
			// The answer took longer than the validity, so the lease must not start. Another
			// try makes sense only with a full timeout.
			if late++; late == 3 || retry.Timeout() != e.terms.timeout() {
				refusal = errors.Join(ErrLeaseExpired, errSlowServer)
				return nil
			}
		}
	})
	switch {
	case err != nil:
		e.c.abandon(a)
		return nil, err
	case !granted || refusal != nil:
		e.c.abandon(a)
		return nil, cmp.Or(refusal, r.OddReply(answer))
	}
	return e.c.hold(ctx, a, token, t0)
}

// engineLease is a Lease with the methods that only the packages above need.
type engineLease struct{ *Lease }

func (l engineLease) Value() string { return l.a.value }

func (l engineLease) Err() error { return l.life.Err() }

func (l engineLease) Overdue() time.Duration { return l.life.Overdue() }

func (l engineLease) Abort(reason error) bool {
	if l.life.Err() != nil || !l.end(errors.Join(ErrLeaseExpired, reason)) {
		return false
	}
	l.c.removeLease(l.Lease)
	return true
}

func (l engineLease) Lose() {
	if l.end(ErrLeaseLost) {
		l.c.noteLoss(l.Lease, ErrLeaseLost)
	}
}

func (l engineLease) Finish() {
	if l.end(ErrReleased) {
		l.c.removeLease(l.Lease)
	}
}
