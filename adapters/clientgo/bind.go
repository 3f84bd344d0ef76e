package clientgo

import (
	"context"
	"sync"
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
// corrects the timer of the context. If the leadership is over by then, the context is done
// 100 ms later, unless that request renews the record.
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
	b := &boundContext{Context: inner, hold: &l.hold, cancel: cancel}
	l.hold.bind(b)
	return b, func() {
		l.hold.unbind(b)
		cancel(context.Canceled)
	}
}

// A boundContext is a context of package context that also ends with a hold. Package context
// treats it like the context inside, so contexts derived from it end with the one inside.
type boundContext struct {
	context.Context
	hold   *hold
	cancel context.CancelCauseFunc
	cause  error // cause of the end of the hold; guarded by hold.mu
}

func (b *boundContext) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if cause := b.hold.ended(b); cause != nil {
		b.cancel(cause)
	}
	return b.Context.Err()
}

// A hold is the Lock's own leadership, on the Client's clock.
type hold struct {
	elapsed func() time.Duration

	mu    sync.Mutex
	valid bool
	until time.Duration
	why   error // the cause if it is not valid
	wins  int   // number of this Lock's successful writes
	bound map[*boundContext]struct{}
	timer *time.Timer // nil: no context was bound yet
	over  bool        // the time was over at a request, and timer ends the hold soon
}

// decideWithin is how long the hold lasts after a request has found that its time is over. If
// the request writes the record in that time, no other candidate has led.
const decideWithin = 100 * time.Millisecond

// beforeRequest sets the timer again. Timers stop while the machine is suspended, so the hold
// would otherwise end later by the time of the suspension.
func (h *hold) beforeRequest() {
	left := -h.elapsed()
	h.mu.Lock()
	defer h.mu.Unlock()
	if left += h.until; !h.valid || len(h.bound) == 0 || h.over {
		return
	}
	if h.over = left <= 0; h.over {
		left = decideWithin
	}
	h.timer.Reset(left)
}

// validFor returns how long a record with this lease is valid locally.
func validFor(seconds int) time.Duration {
	ttl := time.Duration(seconds) * time.Second
	return ttl - lease.Margin(ttl)
}

// extend records a successful write that was sent at t0.
func (h *hold) extend(t0 time.Duration, seconds int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.valid, h.over, h.until, h.wins = true, false, t0+validFor(seconds), h.wins+1
}

// won returns the number of successful writes.
func (h *hold) won() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wins
}

// end ends the hold.
func (h *hold) end(cause error) { h.endSince(-1, cause) }

// endSince ends the hold unless a write has succeeded since the number of writes was won.
func (h *hold) endSince(won int, cause error) {
	h.mu.Lock()
	if won >= 0 && won != h.wins {
		h.mu.Unlock()
		return
	}
	ended := h.finish(cause)
	h.mu.Unlock()
	cancel(ended)
}

// finish must be called with mu. The caller must cancel the returned contexts without mu, since
// functions of the application may run then.
func (h *hold) finish(cause error) (ended map[*boundContext]struct{}) {
	if !h.valid {
		return nil
	}
	h.valid, h.why = false, cause
	for b := range h.bound {
		b.cause = cause
	}
	ended, h.bound = h.bound, nil
	return ended
}

func cancel(ended map[*boundContext]struct{}) {
	for b := range ended {
		b.cancel(b.cause)
	}
}

func (h *hold) bind(b *boundContext) {
	h.check()
	left := -h.elapsed()
	h.mu.Lock()
	if !h.valid {
		b.cause = h.why
		h.mu.Unlock()
		b.cancel(b.cause)
		return
	}
	defer h.mu.Unlock()
	left += h.until
	if h.bound == nil {
		h.bound = map[*boundContext]struct{}{}
	}
	h.bound[b] = struct{}{}
	if h.timer == nil {
		h.timer = time.AfterFunc(left, h.tick)
	} else {
		h.timer.Reset(left)
	}
}

func (h *hold) unbind(b *boundContext) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.bound, b)
	if len(h.bound) == 0 && h.timer != nil {
		h.timer.Stop()
	}
}

// tick checks whether the hold has ended, and sets the timer to its current end.
func (h *hold) tick() {
	h.check()
	left := -h.elapsed()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.bound) > 0 {
		h.timer.Reset(left + h.until)
	}
}

// check ends the hold if its time is over.
func (h *hold) check() {
	now := h.elapsed()
	h.mu.Lock()
	var ended map[*boundContext]struct{}
	if now >= h.until {
		ended = h.finish(lockcore.ErrLeaseExpired)
	}
	h.mu.Unlock()
	cancel(ended)
}

// ended returns nil while the hold of b is valid, and then the cause of its end.
func (h *hold) ended(b *boundContext) error {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return b.cause
}
