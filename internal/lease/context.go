package lease

import (
	"context"
	"time"
)

// leaseContext is the context of a lease. Its Err also reads the clock: after a pause of
// the process no timer has fired yet.
type leaseContext struct{ l *Lease }

type contextKey struct{}

// From returns the lease of a context from Context or Bind, or of a context derived from it, or nil.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(contextKey{}).(*Lease)
	return l
}

// Context returns a context that is done when the lease ends, with Err as its cause. Its
// Err reads the clock. Contexts derived from it do not read the clock, and end slightly
// later. Bind returns a derived context that reads the clock and ends with the lease.
func (l *Lease) Context() context.Context { return leaseContext{l} }

func (x leaseContext) Deadline() (time.Time, bool) { return x.l.values.Deadline() }

func (x leaseContext) Done() <-chan struct{} { return x.l.ending.ended() }

func (x leaseContext) Err() error {
	_ = x.l.Err()
	return x.l.ending.err()
}

func (x leaseContext) Value(key any) any {
	if key == (contextKey{}) {
		return x.l
	}
	return x.l.ending.value(x.l.values, key)
}

// AfterFunc is called by package context.
func (x leaseContext) AfterFunc(f func()) (stop func() bool) { return x.l.ending.afterFunc(f) }

// A boundContext is done when its parent is or when the lease ends.
type boundContext struct {
	context.Context // the parent
	l               *Lease
	binding
}

// Bind returns a context that is done when parent is done or the lease ends, whichever
// comes first. Its Err reads the clock. Call stop when the work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	b := &boundContext{Context: parent, l: l}
	b.bind(parent)
	l.mu.Lock()
	if l.ended {
		b.end(context.Canceled, l.ending.cause())
	} else {
		if l.bindings == nil {
			l.bindings = map[*binding]struct{}{}
		}
		l.bindings[&b.binding] = struct{}{}
	}
	l.mu.Unlock()
	return b, func() {
		l.mu.Lock()
		delete(l.bindings, &b.binding)
		l.mu.Unlock()
		b.end(context.Canceled, context.Canceled)
		b.release()
	}
}

func (b *boundContext) Done() <-chan struct{} { return b.ended() }

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
	return b.value(b.Context, key)
}

// AfterFunc is called by package context.
func (b *boundContext) AfterFunc(f func()) (stop func() bool) { return b.afterFunc(f) }
