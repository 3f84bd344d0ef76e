package lease

import (
	"context"
	"sync"
	"sync/atomic"
)

// An ending is what a context needs to be done. It ends in constant time and runs
// nothing of the user's: contexts derived from it, and functions of context.AfterFunc,
// follow on goroutines of their own. Contexts of package context end their children
// first, however many those are, and so many leases that end at one instant would wait
// for each other's.
type ending struct {
	done  chan struct{}
	state atomic.Pointer[endState]

	mu     sync.Mutex
	final  context.Context // ended by package context, so that context.Cause finds the cause
	hooks  context.Context // what follows hangs on it; nil: nothing does
	unhook context.CancelFunc
}

type endState struct{ err, cause error }

func newEnding() ending { return ending{done: make(chan struct{})} }

// end ends it, once; false if it had ended before. Call follow next.
func (e *ending) end(err, cause error) bool {
	if !e.state.CompareAndSwap(nil, &endState{err, cause}) {
		return false
	}
	close(e.done)
	return true
}

// follow ends what hangs on it.
func (e *ending) follow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unhook != nil {
		go e.unhook()
	}
}

// cause is why it has ended; nil if it has not.
func (e *ending) cause() error {
	if s := e.state.Load(); s != nil {
		return s.cause
	}
	return nil
}

// err is the error of a context that has ended so.
func (e *ending) err() error {
	s := e.state.Load()
	if s == nil {
		return nil
	}
	<-e.done // at once: who sees the error sees it done
	return s.err
}

// afterFunc is the method that package context looks for in contexts of others.
func (e *ending) afterFunc(f func()) (stop func() bool) {
	e.mu.Lock()
	if e.hooks == nil {
		e.hooks, e.unhook = context.WithCancel(context.Background())
	}
	hooks := e.hooks
	if e.state.Load() != nil {
		e.unhook()
	}
	e.mu.Unlock()
	return context.AfterFunc(hooks, f)
}

// value is that of a context with these values.
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
