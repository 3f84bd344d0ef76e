package input

import (
	"cmp"
	"context"
	"time"
)

// Context returns a context that ends with ctx, and whose methods do not panic. Every exported
// function that takes something while it uses a context calls Context first: a panic of Done or
// Deadline then reaches the caller, and nothing was taken.
//
// ctx may be of any type, or be derived from one. A panic of its Err or Value would lose a
// connection or an attempt on the caller's goroutine, and would end the process on one that
// package context starts. That package also panics if a context is done and has no error.
func Context(ctx context.Context) context.Context {
	if ctx == context.Background() || ctx == context.TODO() {
		return ctx
	}
	if _, ok := ctx.(interface{ CallerGuarded() }); ok {
		return ctx
	}
	g := &guarded{ctx: ctx, done: ctx.Done()}
	g.deadline, g.limited = ctx.Deadline()
	return g
}

// A guarded is the context of a caller.
type guarded struct {
	ctx      context.Context
	done     <-chan struct{}
	deadline time.Time
	limited  bool // it has a deadline
}

// CallerGuarded marks the contexts for which Context has nothing to do.
func (g *guarded) CallerGuarded() {}

func (g *guarded) Deadline() (time.Time, bool) { return g.deadline, g.limited }

func (g *guarded) Done() <-chan struct{} { return g.done }

// Err is never nil once Done is closed. It may have an error before: the Err of a lease's context
// reads the clock.
func (g *guarded) Err() error {
	if err := g.ask(); err != nil {
		return err
	}
	select {
	case <-g.done:
		return cmp.Or(g.ask(), context.Canceled) // it may have ended after the first question
	default:
		return nil
	}
}

// ask returns the error of the caller's context, nil if Err panics.
func (g *guarded) ask() (err error) {
	defer func() { _ = recover() }()
	return g.ctx.Err()
}

// Value returns nil if the Value of the caller's context panics.
func (g *guarded) Value(key any) (value any) {
	defer func() { _ = recover() }()
	return g.ctx.Value(key)
}
