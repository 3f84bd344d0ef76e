package lease

import (
	"context"
	"sync"
	"sync/atomic"
)

// An ending makes a context done, in constant time, and runs no code of the user's:
// derived contexts and functions of context.AfterFunc follow on other goroutines.
//
// Package context ends all children of a context before it returns. So leases that end at
// the same instant would delay each other.
type ending struct {
	state atomic.Pointer[endState]

	closing sync.Mutex
	done    chan struct{} // made by the first call of Done; guarded by closing

	mu      sync.Mutex
	final   context.Context // gives context.Cause the cause
	derived context.Context // parent of derived contexts and functions, once there are any
	cancel  context.CancelFunc
}

type endState struct{ err, cause error }

// end sets the error and the cause. It returns false if e has ended before. Call follow next.
func (e *ending) end(err, cause error) bool {
	e.closing.Lock()
	defer e.closing.Unlock()
	if !e.state.CompareAndSwap(nil, &endState{err, cause}) {
		return false
	}
	if e.done != nil {
		close(e.done)
	}
	return true
}

// Done returns the channel that end closes.
func (e *ending) Done() <-chan struct{} {
	e.closing.Lock()
	defer e.closing.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.state.Load() != nil {
			close(e.done)
		}
	}
	return e.done
}

// follow ends the derived contexts and starts the functions of context.AfterFunc.
func (e *ending) follow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cancel != nil {
		go e.cancel() // it ends at once, unless a parent of the user's type blocks
	}
}

// cause returns the cause of the end, nil before the end.
func (e *ending) cause() error {
	if s := e.state.Load(); s != nil {
		return s.cause
	}
	return nil
}

// err returns the error of the context, nil before the end.
func (e *ending) err() error {
	s := e.state.Load()
	if s == nil {
		return nil
	}
	e.closing.Lock() // a caller that sees the error must also see Done closed
	defer e.closing.Unlock()
	return s.err
}

// AfterFunc is called by package context.
func (e *ending) AfterFunc(f func()) (stop func() bool) {
	e.mu.Lock()
	if e.derived == nil {
		e.derived, e.cancel = context.WithCancel(context.Background())
	}
	derived := e.derived
	if e.state.Load() != nil {
		e.cancel()
	}
	e.mu.Unlock()
	return context.AfterFunc(derived, f)
}

// value returns a value of the context whose values are in values.
func (e *ending) value(values context.Context, key any) any {
	s := e.state.Load()
	if s == nil {
		return values.Value(key)
	}
	e.mu.Lock()
	if e.final == nil {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
		cancel(s.cause)
		e.final = ctx
	}
	final := e.final
	e.mu.Unlock()
	return final.Value(key)
}
