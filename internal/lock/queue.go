package lock

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Waiter is one attempt in the queue.
type Waiter struct {
	Identity string
	Since    time.Time // by the server's clock, when it joined or was promoted
	Promoted bool
}

// Queue returns the attempts in the queue of the name's mutex, next holder first.
func (n *Name) Queue(ctx context.Context) ([]Waiter, error) {
	r := n.c.scripts.queue.Call([]any{&n.keys.queue, &n.keys.seen})
	answer, err := n.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok {
		return nil, r.OddReply(answer)
	}
	queue := make([]Waiter, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		v, ok := ReadValue(wire.Text(list[i]))
		at, err := strconv.ParseFloat(wire.Text(list[i+1]), 64)
		if !ok || err != nil {
			continue // this library did not write it
		}
		queue = append(queue, Waiter{Identity: v.Identity, Since: PlaceTime(at), Promoted: at < 0})
	}
	return queue, nil
}

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
