package clientgo

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A leadership is the time in which a Lock leads. It ends the contexts of Lock.Bind.
type leadership struct {
	elapsed func() time.Duration // the Client's clock

	mu    sync.Mutex    // guards the fields below, and Lock.last
	until time.Duration // end of the validity, on the clock of elapsed
	ended error         // cause of the end; nil while the Lock leads
	bound map[*boundContext]struct{}
	timer *time.Timer // calls check
}

func (l *leadership) init(elapsed func() time.Duration) {
	l.elapsed, l.ended, l.bound = elapsed, lockcore.ErrNotHeld, map[*boundContext]struct{}{}
	l.timer = time.AfterFunc(time.Hour, l.check)
	l.timer.Stop() // it never ran: Bind starts it with the right time
}

// A boundContext is a context of package context that also ends with the leadership. Contexts derived
// from a boundContext end when that inner context ends; they do not read the clock.
type boundContext struct {
	context.Context
	leadership *leadership
	cancel     context.CancelCauseFunc
}

func (b *boundContext) Err() error {
	if b.Context.Err() == nil {
		b.leadership.check()
	}
	return b.Context.Err()
}

// check ends the leadership if its time is over. Otherwise, it sets the timer again, which fires late
// if the machine was suspended.
func (l *leadership) check() {
	now := l.elapsed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	if len(l.bound) > 0 {
		l.timer.Reset(l.until - now)
	}
}

// expire ends the leadership if its time is over. l.mu is held.
func (l *leadership) expire(now time.Duration) {
	if now >= l.until {
		l.end(lockcore.ErrLeaseExpired)
	}
}

// end ends the leadership and the contexts that are bound to it. l.mu is held.
func (l *leadership) end(cause error) {
	if l.ended != nil {
		return
	}
	l.ended = cause
	for b := range l.bound {
		b.cancel(cause)
	}
	clear(l.bound)
}
