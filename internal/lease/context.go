package lease

import (
	"context"
	"time"
)

// leaseContext is the context of a lease. Its Err also reads the clock: after a pause of
// the process no timer has fired yet.
type leaseContext struct{ l *Lease }

type contextKey struct{}

// From returns the lease of a context that Context or Bind returned, or that is derived from one. Otherwise, it is nil.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(contextKey{}).(*Lease)
	return l
}

// Context returns a context that is done when the lease ends, with Err as its cause. Its
// Err reads the clock. Contexts derived from it do not read the clock, and end slightly
// later. Bind returns a derived context that reads the clock and ends with the lease.
func (l *Lease) Context() context.Context { return leaseContext{l} }

func (x leaseContext) Deadline() (time.Time, bool) { return x.l.values.Deadline() }

func (x leaseContext) Done() <-chan struct{} { return x.l.ending.Done() }

func (x leaseContext) AfterFunc(f func()) (stop func() bool) { return x.l.ending.AfterFunc(f) }

func (x leaseContext) Err() error {
	_ = x.l.Err() // ends the lease if its time is over
	return x.l.ending.err()
}

func (x leaseContext) Value(key any) any {
	if key == (contextKey{}) {
		return x.l
	}
	return x.l.ending.value(x.l.values, key)
}

// A boundContext is a context of Bind. It is done when its parent is done or the lease ends.
type boundContext struct {
	ending
	l *Lease

	// mirror has the values of the parent and ends with it. Its Err runs no code of the user's.
	mirror context.Context
	unbind context.CancelFunc // ends mirror
	unhook func() bool        // prevents the call of parentEnded
}

// Bind returns a context that is done when parent is done or the lease ends, whichever
// comes first. Its Err reads the clock. Call stop when the work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	b := &boundContext{l: l}
	b.mirror, b.unbind = context.WithCancel(parent)
	b.unhook = context.AfterFunc(b.mirror, b.parentEnded)
	if b.mirror.Err() != nil {
		b.parentEnded() // the hook calls it too late, on another goroutine
	}
	l.mu.Lock()
	if l.ended {
		b.end(context.Canceled, l.ending.cause())
	} else {
		if l.bindings == nil {
			l.bindings = map[*ending]func(){}
		}
		l.bindings[&b.ending] = b.release
	}
	l.mu.Unlock()
	return b, func() {
		l.mu.Lock()
		delete(l.bindings, &b.ending)
		l.mu.Unlock()
		b.end(context.Canceled, context.Canceled)
		b.release()
	}
}

func (b *boundContext) parentEnded() {
	b.end(b.mirror.Err(), context.Cause(b.mirror))
	b.follow()
}

// release detaches b from its parent and ends the contexts derived from b.
func (b *boundContext) release() {
	b.unhook()
	b.unbind()
	b.follow()
}

func (b *boundContext) Deadline() (time.Time, bool) { return b.mirror.Deadline() }

func (b *boundContext) Err() error {
	if b.cause() == nil {
		if cause := b.l.Err(); cause != nil {
			b.end(context.Canceled, cause)
		} else if b.mirror.Err() != nil {
			b.parentEnded()
		}
	}
	return b.err()
}

func (b *boundContext) Value(key any) any {
	if key == (contextKey{}) {
		return b.l
	}
	return b.value(b.mirror, key)
}
