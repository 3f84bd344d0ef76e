package lock

import (
	"maps"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
)

const (
	// firstLog is the time after which a call of Lock first logs the holder. The interval doubles with each line.
	firstLog = 3 * time.Second

	// A Client logs each name at most once in logInterval, and at most logNames names in that time.
	logInterval, logNames = 30 * time.Second, 10
)

// A waiter is one call of Lock. It logs why the call waits.
type waiter struct {
	*Name
	requests readiness.State
	interval time.Duration    // time until the next line, zero if the call logs nothing
	timer    <-chan time.Time // end of the interval, nil before its begin
	due      bool             // whether the holder in the next answer is to be logged
}

// answered records the result of a request of the call, for the log of failures.
func (w *waiter) answered(err error) {
	if err != nil {
		w.requests.Failed(w.c.waits, w.c.log.WithValues("name", w.keys.name), err, IsTemporary(err))
	} else {
		w.requests.Works(0)
	}
}

// tick returns a channel that receives a value when the interval is over. The caller then calls isDue. The interval
// begins with the first call of tick.
func (w *waiter) tick() <-chan time.Time {
	if w.timer == nil && w.interval > 0 {
		w.timer = time.After(w.interval)
	}
	return w.timer
}

// isDue ends the interval, and reports whether a line about the holder is due.
func (w *waiter) isDue() bool {
	w.interval, w.timer = 2*w.interval, nil
	if !w.c.mayLog(w.keys.name) {
		return false
	}
	w.due = true
	return true
}

// heldBy returns the holder in r. It shows the identity and the owner only, as the rest of the stored value is secret.
func (n *Name) heldBy(r *acquireReply) *Held {
	v, _ := ReadValue(r.holder)
	return &Held{Name: n.keys.name, Holder: v.Identity, Owner: v.Owner, TTL: r.left}
}

// mayLog reports whether a line about a subject may be logged, and counts it. A subject is a name, its size, or "" for
// failed withdrawals.
func (c *Client) mayLog(subject string) bool {
	now := c.clock.Ticks()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.logged, func(_ string, at time.Duration) bool { return now-at >= logInterval })
	if _, recent := c.logged[subject]; recent || len(c.logged) >= logNames {
		return false
	}
	c.logged[subject] = now
	return true
}

func (w *waiter) logHolder(r acquireReply) {
	w.due = false
	held := w.heldBy(&r)
	w.c.log.Info("waiting for a lock", "name", held.Name, "holder", held.Holder, "owner", held.Owner, "ttl", held.TTL)
}
