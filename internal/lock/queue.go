package lock

import (
	"context"
	"math"
	"time"
)

// PlaceTime returns the time of a score in the queue. The score of an attempt that was
// promoted is negative, see lock_promote.lua.
func PlaceTime(at float64) time.Time { return time.UnixMilli(int64(math.Abs(at))).UTC() }

// A Promotion is the result of Promote.
type Promotion int

// The results of Promote.
const (
	Promoted Promotion = iota
	NoWaiter           // no waiter has that identity
	NotHeld            // the lease no longer holds the name
)

// Promote moves the first waiter of an identity to the head of the queue, if the lease still holds the
// name.
func (l *Lease) Promote(ctx context.Context, identity string) (Promotion, error) {
	if err := CheckIdentity("identity", identity); err != nil {
		return 0, err
	}
	keys := l.a.keys
	r := l.a.c.scripts.promote.Call([]any{&keys.lock, &keys.queue, &keys.seen}, &l.a.value, identity, &keys.channels)
	answer, err := l.a.Ask(ctx, r)
	n, err := r.Number(answer, err)
	switch {
	case err != nil:
		return 0, err
	case n == 1:
		return Promoted, nil
	case n == 0:
		return NoWaiter, nil
	}
	return NotHeld, nil
}
