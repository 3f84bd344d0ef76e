package lease

import (
	"context"
	"sync"
	"sync/atomic"
)

// An ending makes the context of a lease done, in constant time, and runs no code of the user's:
// derived contexts and functions of context.AfterFunc end or run later, on other goroutines.
//
// A cancel function of package context first ends all children of its context. With it, leases that end at
// the same instant would delay each other.
type ending struct {
	state atomic.Pointer[endState]

	doneMu sync.Mutex
	done   chan struct{} // made by the first call of Done

	mu      sync.Mutex
	final   context.Context // ended context in which context.Cause finds the cause
	derived context.Context // parent of derived contexts and functions, nil before the first
	cancel  context.CancelFunc
}

type endState struct{ err, cause error }

// end sets the error and the cause. It returns false if e has ended before. The caller then calls follow.
func (e *ending) end(err, cause error) bool {
	e.doneMu.Lock()
	defer e.doneMu.Unlock()
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
	e.doneMu.Lock()
	defer e.doneMu.Unlock()
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
		go e.cancel() // it may block in a derived context of the user's type
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
	e.doneMu.Lock() // a caller that sees the error must also see Done closed
	defer e.doneMu.Unlock()
	return s.err
}

// AfterFunc registers a function that runs after the end. Package context calls it, also for derived contexts.
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

// value returns the value of key in values. After the end, package context also finds the cause with it.
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
