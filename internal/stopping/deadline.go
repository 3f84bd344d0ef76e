// Package stopping has the one deadline for what is left to do when a context has
// ended: work that drains, outcomes to record, leases to release.
package stopping

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrDeadline is the cause of a context whose deadline for stopping is over.
var ErrDeadline = errors.New("the deadline for stopping is over")

// A Deadline is an instant at a fixed distance from the end of a context. It is
// safe for concurrent use.
type Deadline struct {
	ctx    context.Context
	within time.Duration
	last   time.Duration

	mu    sync.Mutex
	ended time.Time // when the end of ctx was seen
}

// New returns the deadline that is within after the end of ctx. What begins when it
// is over, as the work did not end in time, has last to try once. Call stop when
// nothing is left to do.
func New(ctx context.Context, within, last time.Duration) (d *Deadline, stop func()) {
	d = &Deadline{ctx: ctx, within: within, last: last}
	unhook := context.AfterFunc(ctx, func() { d.end() })
	return d, func() { unhook() }
}

// end is when ctx has ended.
func (d *Deadline) end() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.IsZero() {
		d.ended = time.Now()
	}
	return d.ended
}

// left is how long there is from now, the last try included, if ctx has ended.
func (d *Deadline) left(reserve time.Duration) time.Duration {
	return max(d.last, time.Until(d.end().Add(d.within-reserve)))
}

// Context is for one thing that is left to do. It carries the values of ctx and does
// not end with it, but reserve before the deadline, and not before the last try.
func (d *Deadline) Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(d.ctx, func() {
		timer := time.NewTimer(d.left(reserve))
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(ErrDeadline)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Finish is for something that is under way when ctx ends. It carries the values of ctx,
// and ends as long after it as the last try may take.
func (d *Deadline) Finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.Context(ctx, d.within)
}

// Last is how long the last try may take: the reserve of what another thing follows.
func (d *Deadline) Last() time.Duration { return d.last }

// Wait waits until done is closed, until the deadline at most; false: it was not.
func (d *Deadline) Wait(done <-chan struct{}) bool {
	ctx, cancel := d.Context(d.ctx, 0)
	defer cancel()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
