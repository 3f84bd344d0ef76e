package lock

import (
	"context"
	"math"
	"time"
)

// PlaceTime returns the time of a score in the queue. The score of an attempt that was
// promoted is negative, see lock_promote.lua.
func PlaceTime(at float64) time.Time { return time.UnixMilli(int64(math.Abs(at))).UTC() }

// Promote moves the first waiter of an identity to the head of the queue, if the lease still holds the
// name. The error is noWaiter if no waiter has the identity, and ErrNotHeld.
func (l *Lease) Promote(ctx context.Context, identity string, noWaiter error) error {
	if err := CheckIdentity("identity", identity); err != nil {
		return err
	}
	keys := l.a.keys
	r := l.a.c.scripts.promote.Call([]any{&keys.lock, &keys.queue, &keys.seen}, &l.a.value, identity, &keys.channels)
	_, _, err := l.a.Act(ctx, r, func(answer any) error {
		switch n, err := r.Number(answer, nil); {
		case err != nil || n == 1:
			return err
		case n == 0:
			return noWaiter
		}
		return ErrNotHeld
	})
	return err
}
