package clientgo

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/lockcore"
)

// Bind returns a context that is done when parent is done or when the leadership ends,
// whichever comes first. The leadership ends LeaseDuration, less a margin of 1 % and 2 ms,
// after the last successful write of the record was sent. Other candidates may lead only after
// that. It ends earlier if another candidate has written the record or the record was
// lost, and before a release is sent.
//
// The Err of the context reads the clock, so it is correct even if the process was paused
// and no timer has fired yet. In contrast, client-go's own context lasts until the elector
// has failed to renew for RenewDeadline. Contexts derived from the bound one do not read the
// clock; they end slightly later.
//
// The cause of the context (context.Cause) is lockcore.ErrLeaseExpired,
// lockcore.ErrLeaseLost or lockcore.ErrReleased, or lockcore.ErrNotHeld if this Lock has
// not written the record yet.
//
// Timers stop while a machine is suspended. The first request of the elector after that
// corrects the timer of the context, which is done at once if the leadership is over by then. If
// that request renews the record, a new leadership begins.
//
// Call Bind in OnStartedLeading, and stop when the work is done. The end of the work does
// not stop the elector, which may renew the record again. So end the elector's own context
// with the work:
//
//	OnStartedLeading: func(lead context.Context) {
//		defer cancel() // cancels the context of LeaderElector.Run
//		ctx, stop := lock.Bind(lead)
//		defer stop()
//		work(ctx)
//	},
func (l *Lock) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	b := &boundContext{Context: inner, lock: l, cancel: cancel}
	now := l.elapsed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	if l.ended != nil {
		cancel(l.ended)
	} else {
		l.bound[b] = struct{}{}
		l.timer.Reset(l.until - now)
	}
	return b, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.bound, b)
		cancel(context.Canceled)
	}
}

// A boundContext is a context of package context that also ends with the leadership of a Lock. Package
// context treats it like the context inside, so contexts derived from it end with the one inside.
type boundContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

func (b *boundContext) Err() error {
	if b.Context.Err() == nil {
		b.lock.check()
	}
	return b.Context.Err()
}

// validFor returns how long a record with this lease is valid locally.
func validFor(seconds int) time.Duration {
	ttl := time.Duration(seconds) * time.Second
	return ttl - lease.Margin(ttl)
}

// check ends the leadership if its time is over. Otherwise, it sets the timer again: timers stop while
// the machine is suspended.
func (l *Lock) check() {
	now := l.elapsed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire(now)
	if len(l.bound) > 0 {
		l.timer.Reset(l.until - now)
	}
}

// expire ends the leadership if its time is over. l.mu is held.
func (l *Lock) expire(now time.Duration) {
	if now >= l.until {
		l.end(lockcore.ErrLeaseExpired)
	}
}

// end ends the leadership and the contexts that are bound to it. l.mu is held.
func (l *Lock) end(cause error) {
	if l.ended != nil {
		return
	}
	l.ended = cause
	for b := range l.bound {
		b.cancel(cause)
	}
	clear(l.bound)
}
