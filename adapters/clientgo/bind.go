package clientgo

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// Bind returns a context that is done when parent is or when the lead is over,
// whichever comes first. The lead is over LeaseDuration, less a margin of 1 % and 2 ms,
// after the last successful write of the record was sent, before other candidates may
// lead. It is over earlier if the record is another's or was lost, and before it is
// released.
//
// Its Err looks at the clock, so that it is right even when the process has been paused
// and no timer has run yet. client-go's own context lasts until the elector has tried
// in vain for RenewDeadline. Contexts derived from the one returned do not look at the
// clock; they are done just after it.
//
// The cause of the context (context.Cause) is lockcore.ErrLeaseExpired,
// lockcore.ErrLeaseLost or lockcore.ErrReleased. It is lockcore.ErrNotHeld if this Lock
// has not written the record yet.
//
// Call Bind in OnStartedLeading and stop when the work is done. The elector does not
// know that the work has ended, and may renew the record again. So end the elector's
// own context with the work:
//
//	OnStartedLeading: func(lead context.Context) {
//		defer cancel() // the context that LeaderElector.Run was given
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

// A boundContext is a context of package context that ends with a hold as well. Package
// context takes it for the one inside, so contexts derived from it end with that.
type boundContext struct {
	context.Context
	hold   *hold
	cancel context.CancelCauseFunc
	cause  error // of the end of the hold; guarded by hold.mu
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

// A hold is what a Lock knows of its own lead, on the Client's clock.
type hold struct {
	elapsed func() time.Duration

	mu    sync.Mutex
	valid bool
	until time.Duration
	why   error // why it is not valid
	wins  int   // writes of ours that succeeded
	bound map[*boundContext]struct{}
	timer *time.Timer // nil: nothing was bound yet
}

// validFor is how long a record of so many seconds counts here.
func validFor(seconds int) time.Duration {
	lease := time.Duration(seconds) * time.Second
	return lease - lease/100 - 2*time.Millisecond
}

// extend counts a write that succeeded and was sent at t0.
func (h *hold) extend(t0 time.Duration, seconds int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.valid, h.until, h.wins = true, t0+validFor(seconds), h.wins+1
}

// won is how many writes succeeded.
func (h *hold) won() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wins
}

// end ends the hold.
func (h *hold) end(cause error) { h.endSince(-1, cause) }

// endSince ends the hold unless a write succeeded since there were so many of them.
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

// finish has mu. What it returns is to be cancelled without mu, as functions of the
// application may run then.
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

// tick looks when the hold was to end, and again when it is to end by now.
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

// ended is why the hold of b has ended, nil if it goes on.
func (h *hold) ended(b *boundContext) error {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return b.cause
}
