package lease

import (
	"context"
	"time"
)

// leaseContext is the context of a lease. Its Err also looks at the clock: after a pause
// of the process no timer has run yet.
type leaseContext struct {
	values context.Context
	l      *Lease
}

// Context is done when the lease ends, with Err as its cause. Its Err looks at the clock.
// Contexts derived from it do not, and are done just after it; Bind makes one that looks
// and is done with it.
func (l *Lease) Context() context.Context { return l.ctx }

func (x leaseContext) Deadline() (time.Time, bool) { return x.values.Deadline() }

func (x leaseContext) Done() <-chan struct{} { return x.l.ending.done }

func (x leaseContext) Err() error {
	_ = x.l.Err()
	return x.l.ending.err()
}

func (x leaseContext) Value(key any) any { return x.l.ending.value(x.values, key) }

// AfterFunc is for package context, which looks for it.
func (x leaseContext) AfterFunc(f func()) (stop func() bool) { return x.l.ending.afterFunc(f) }

// A boundContext is done when its parent is or when the lease ends.
type boundContext struct {
	context.Context // the parent
	l               *Lease
	ending          ending

	// mirror knows the end of the parent at once and without calling it.
	mirror context.Context
	unbind context.CancelFunc
	unhook func() bool
}

// Bind returns a context that is done when parent is or when the lease ends,
// whichever comes first, and whose Err looks at the clock. Call stop when the
// work is done.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	b := &boundContext{Context: parent, l: l, ending: newEnding()}
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

// release lets go of the parent, and ends what hangs on b.
func (b *boundContext) release() {
	b.unhook()
	b.unbind()
	b.ending.follow()
}

func (b *boundContext) Done() <-chan struct{} { return b.ending.done }

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

func (b *boundContext) Value(key any) any { return b.ending.value(b.Context, key) }

// AfterFunc is for package context, which looks for it.
func (b *boundContext) AfterFunc(f func()) (stop func() bool) { return b.ending.afterFunc(f) }
