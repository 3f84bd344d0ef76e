// Package stopping begins and ends the Runs of workers: electors and runners of jobs. One shared deadline limits the
// steps that follow the end of a Run's context: draining work, recording outcomes, releasing leases.
package stopping

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// ErrDeadline is the cause of contexts that end at a Deadline.
var ErrDeadline = errors.New("noonlock: the deadline for stopping has passed")

// A Deadline is an instant at a fixed distance from the end of a context. It is safe for concurrent use.
type Deadline struct {
	ctx    context.Context
	within time.Duration // time from the end of ctx to the deadline
	last   time.Duration // shortest time for a step

	mu    sync.Mutex
	ended time.Time // end of ctx, zero before it
}

// New returns a Deadline: it passes when the duration within has elapsed since the end of ctx. A step that begins after
// it, because the work did not end in time, still has the duration last for one try. Call stop when no steps are left.
func New(ctx context.Context, within, last time.Duration) (d *Deadline, stop func()) {
	d = &Deadline{ctx: ctx, within: within, last: last}
	unhook := context.AfterFunc(ctx, func() { d.end() })
	return d, func() { unhook() }
}

func (d *Deadline) end() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.IsZero() {
		d.ended = time.Now()
	}
	return d.ended
}

// Context returns a context for one step. It carries the values of ctx but does not end with ctx. It ends
// when only the duration reserve is left before the deadline, but gives each step at least the duration last.
func (d *Deadline) Context(ctx context.Context, reserve time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(d.ctx, func() {
		if retry.Sleep(ctx, max(d.last, time.Until(d.end().Add(d.within-reserve))), nil) {
			cancel(ErrDeadline)
		}
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Finish returns a context for a step that may be in progress when the context of the Deadline ends. It
// carries the values of ctx, and ends when the duration last has elapsed since that end.
func (d *Deadline) Finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.Context(ctx, d.within)
}

// Last returns the duration of the last try. With it as reserve, a step leaves this time to a further step.
func (d *Deadline) Last() time.Duration { return d.last }

// Wait waits for done until the deadline. It reports whether done was closed in time.
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

// A Gate prevents a second Run of a worker while one is in progress. Its zero value is open.
type Gate struct{ entered atomic.Bool }

// Enter reports whether a Run may begin. Call leave when this Run returns: leave writes the last log lines
// with flush, even after the end of ctx, and opens the gate.
func (g *Gate) Enter(ctx context.Context, flush func(context.Context)) (leave func(), ok bool) {
	if !g.entered.CompareAndSwap(false, true) {
		return nil, false
	}
	return func() {
		flush(context.WithoutCancel(ctx))
		g.entered.Store(false)
	}, true
}

// Entered reports whether a Run is inside.
func (g *Gate) Entered() bool { return g.entered.Load() }
