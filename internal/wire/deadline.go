package wire

import (
	"context"
	"sync"
	"time"
)

// A deadline is the context of one use of a connection. It is done when its parent is, or when
// the time of a part of the use is over, and then aborts the exchange. The parts are the wait for
// the connection, and each round trip: a request that had to wait for a dial still has the whole
// time for its answer. The contexts of package context allocate ten times for that. This one uses
// the timer of its connection, and makes a channel only when Done is called.
type deadline struct {
	context.Context               // the parent
	at              time.Time     // the end of the present part; zero: only the parent ends it
	within          time.Duration // the time of a part
	waited          bool          // the requests had to wait

	conn   *connection
	unhook func() bool // from the parent; nil: it is not followed

	mu         sync.Mutex
	done       chan struct{} // nil: Done was not called
	err, cause error         // nil: it has not ended
	exchanging bool
}

// followAfter is when a deadline begins to follow its parent. To follow a context allocates, and most
// requests are answered before.
const followAfter = 500 * time.Microsecond

// limit returns the context of a use of c. A part may take within; 0: only ctx ends it. Call
// stop when the use is over.
func (c *connection) limit(ctx context.Context, within time.Duration) *deadline {
	d := &deadline{Context: ctx, conn: c, within: within}
	if within > 0 {
		c.alarm.set(d, time.Now().Add(within))
	} else {
		d.follow()
	}
	return d
}

// follow makes d end with its parent. It is called before the end of d.
func (d *deadline) follow() {
	if d.unhook == nil && d.Context.Done() != nil {
		d.unhook = context.AfterFunc(d.Context, d.parentEnded)
	}
}

// nextPart begins another part.
func (d *deadline) nextPart() {
	d.waited = true
	if d.within > 0 {
		d.conn.alarm.set(d, time.Now().Add(d.within))
	}
}

// stop ends the use of the connection.
func (d *deadline) stop() {
	if d.within > 0 {
		d.conn.alarm.clear()
	}
	if d.unhook != nil {
		d.unhook()
	}
}

func (d *deadline) parentEnded() { d.end(d.Context.Err(), context.Cause(d.Context)) }

// end makes d done. An exchange that is under way fails, as its connection is closed.
func (d *deadline) end(err, cause error) {
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err, d.cause = err, cause
	if d.done != nil {
		close(d.done)
	}
	var aborted func()
	if d.exchanging {
		aborted = d.conn.replace() // before d.mu is unlocked, and the next exchange begins
	}
	d.mu.Unlock()
	if aborted != nil {
		aborted()
	}
}

// exchange reports the begin and the end of an exchange. It returns false if d has ended.
func (d *deadline) exchange(running bool) bool {
	if running && d.Context.Err() != nil {
		d.parentEnded() // it may not be followed yet
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exchanging = running
	return d.err == nil
}

// Deadline returns when d ends at the latest.
func (d *deadline) Deadline() (time.Time, bool) {
	at, ok := d.Context.Deadline()
	if !d.at.IsZero() && (!ok || d.at.Before(at)) {
		return d.at, true
	}
	return at, ok
}

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		d.done = make(chan struct{})
		if d.err != nil {
			close(d.done)
		}
	}
	return d.done
}

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// why returns what context.Cause returns for contexts of package context.
func (d *deadline) why() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// An alarm ends the deadline of a connection at its time.
type alarm struct {
	mu    sync.Mutex
	timer *time.Timer
	of    *deadline // nil: the connection is not used
}

func (a *alarm) set(d *deadline, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of, d.at = d, at
	left := time.Until(at)
	if d.unhook == nil && d.Context.Done() != nil {
		left = min(left, followAfter)
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(left, a.ring)
	} else {
		a.timer.Reset(left)
	}
}

func (a *alarm) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of = nil
	a.timer.Stop()
}

// ring is called by the timer, perhaps only after the next use of the connection has begun.
func (a *alarm) ring() {
	a.mu.Lock()
	d := a.of
	if d != nil {
		d.follow() // holding mu, so that stop does not miss it
		if left := time.Until(d.at); left > 0 {
			a.timer.Reset(left)
			d = nil
		}
	}
	a.mu.Unlock()
	if d != nil {
		d.end(context.DeadlineExceeded, NoAnswer(d.within))
	}
}
