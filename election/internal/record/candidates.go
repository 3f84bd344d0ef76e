package record

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// Candidates returns the candidates that wait, next leader first, without the leader. One
// that died is listed for up to 3.3 TTLs, or 3.3 s if that is longer.
func (e *Election) Candidates(ctx context.Context) ([]lock.Waiter, error) {
	line, err := e.store.candidates(ctx)
	return line, opError("candidates", e.name, err)
}

// HasQueue reports whether the candidates have an order. On a quorum they have none.
func (e *Election) HasQueue() bool { return e.store.ordered() }

// Promote moves the first candidate with the identity to the head of the queue, so that it
// is the next to lead. No other candidate passes it, not even one that rejoins at an older
// place. Only a later Promote puts another candidate first. found is false if no candidate has
// the identity. The error is ErrNotHeld if the leadership has ended.
func (l *Leadership) Promote(ctx context.Context, identity string) (found bool, err error) {
	const op = "promote"
	if cause := l.Err(); cause != nil {
		return false, opError(op, l.e.name, lockcore.ErrNotHeld, cause)
	}
	if !l.e.store.ordered() {
		return false, opError(op, l.e.name, errNoQueue)
	}
	done, err := l.Lease.Promote(ctx, identity)
	switch {
	case err != nil:
		return false, opError(op, l.e.name, err)
	case done == lock.NotHeld:
		return false, opError(op, l.e.name, lockcore.ErrNotHeld)
	}
	return done == lock.Promoted, nil
}
