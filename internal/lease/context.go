package lease

import (
	"context"
	"time"
)

// leaseContext is the context of a lease. Its Err also reads the clock: after a pause of
// the process no timer has fired yet.
type leaseContext struct {
	values context.Context
	l      *Lease
}

type contextKey struct{}

// From returns the lease of a context that Context or Bind has returned, or that is derived from one; nil: none.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(contextKey{}).(*Lease)
	return l
}

// Context returns a context that is done when the lease ends, with Err as its cause. Its
// Err reads the clock. Contexts derived from it do not read the clock, and end slightly
// later. Bind returns a derived context that reads the clock and ends with the lease.
func (l *Lease) Context() context.Context { return l.ctx }

func (x leaseContext) Deadline() (time.Time, bool) { return x.values.Deadline() }

func (x leaseContext) Done() <-chan struct{} { return x.l.ending.ended() }

func (x leaseContext) Err() error {
	_ = x.l.Err()
	return x.l.ending.err()
}

func (x leaseContext) Value(key any) any {
	if key == (contextKey{}) {
		return x.l
	}
	return x.l.ending.value(x.values, key)
}

// AfterFunc is called by package context.
func (x leaseContext) AfterFunc(f func()) (stop func() bool) { return x.l.ending.afterFunc(f) }

// A boundContext is done when its parent is or when the lease ends.
type boundContext struct {
	context.Context // the parent
	l               *Lease
	ending          ending

	// mirror ends with the parent. Its Err runs no code of the user's.
	mirror context.Context
	unbind context.CancelFunc
	unhook func() bool
}

// Bind returns a context that is done when parent is done or the lease ends, whichever
// comes first. Its Err reads the clock. Call stop when the work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	b := &boundContext{Context: parent, l: l}
	b.mirror, b.unbind = context.WithCancel(parent)
	b.unhook = context.AfterFunc(b.mirror, b.parentEnded)
	if b.mirror.Err() != nil {
		b.parentEnded()
	}
	l.mu.Lock()
	if l.ended {
		b.ending.end(context.Canceled, l.ending.cause())
	} else {
		if l.bound == nil {
			l.bound = map[*boundContext]struct{}{}
		}
		l.bound[b] = struct{}{}
	}
	l.mu.Unlock()
	return b, func() {
		l.mu.Lock()
		delete(l.bound, b)
		l.mu.Unlock()
		b.ending.end(context.Canceled, context.Canceled)
		b.release()
	}
}

func (b *boundContext) parentEnded() {
	b.ending.end(b.mirror.Err(), context.Cause(b.mirror))
	b.ending.follow()
}

// release detaches b from its parent and ends the contexts derived from b.
func (b *boundContext) release() {
	b.unhook()
	b.unbind()
	b.ending.follow()
}

func (b *boundContext) Done() <-chan struct{} { return b.ending.ended() }

func (b *boundContext) Err() error {
	if b.ending.cause() == nil {
		if cause := b.l.Err(); cause != nil {
			b.ending.end(context.Canceled, cause)
		} else if b.mirror.Err() != nil {
			b.parentEnded()
		}
	}
	return b.ending.err()
}

func (b *boundContext) Value(key any) any {
	if key == (contextKey{}) {
		return b.l
	}
	return b.ending.value(b.Context, key)
}

// AfterFunc is called by package context.
func (b *boundContext) AfterFunc(f func()) (stop func() bool) { return b.ending.afterFunc(f) }
