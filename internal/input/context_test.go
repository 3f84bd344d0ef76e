package input_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// A foreign is a context of the application.
type foreign struct {
	context.Context
	err   func() error
	value func(key any) any
}

func (f foreign) Err() error { return f.err() }

func (f foreign) Value(key any) any { return f.value(key) }

func fails() error { panic("no error") }

func none(any) any { panic("no value") }

// Err has an error once Done is closed, and Value returns nothing instead of a panic.
func TestContext(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	for name, c := range map[string]struct {
		err   func() error
		want  error
		early error // before Done is closed, as with a context that reads the clock
	}{
		"nil":     {func() error { return nil }, context.Canceled, nil},
		"a panic": {fails, context.Canceled, nil},
		"early":   {func() error { return own }, own, own},
	} {
		parent, cancel := context.WithTimeout(t.Context(), time.Hour)
		ctx := input.Context(foreign{parent, c.err, none})
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Hour {
			t.Errorf("%s: the deadline is %v, %v", name, at, ok)
		}
		if v := ctx.Value("key"); v != nil {
			t.Errorf("%s: the value is %v", name, v)
		}
		if err := ctx.Err(); !errors.Is(err, c.early) {
			t.Errorf("%s: error %v before the end, want %v", name, err, c.early)
		}
		cancel()
		if err := ctx.Err(); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
		if input.Context(ctx) != ctx {
			t.Errorf("%s: the result is not its own result", name)
		}
	}
	if bg := context.Background(); input.Context(bg) != bg {
		t.Error("the background context is not its own result")
	}
}

// Contexts and functions of package context that follow a foreign one end without a panic, on the
// goroutine that waits for it and on that which ends it.
func TestContextIsAParent(t *testing.T) {
	t.Parallel()
	for _, ownDone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			value := parent.Value
			if ownDone {
				value = none // package context does not find its own context behind it
			}
			ctx := input.Context(foreign{parent, fails, value})
			child, stop := context.WithCancel(ctx)
			defer stop()
			called := make(chan struct{})
			context.AfterFunc(ctx, func() { close(called) })
			cancel()
			<-called
			<-child.Done()
			if err := context.Cause(child); !errors.Is(err, context.Canceled) {
				t.Errorf("the cause is %v", err)
			}
		})
	}
}

// An ordinary context costs one allocation, and the background context none.
func TestContextAllocates(t *testing.T) { //nolint:paralleltest // it counts allocations
	for _, c := range []struct {
		ctx  context.Context
		want float64
	}{{context.Background(), 0}, {t.Context(), 1}} {
		if n := testing.AllocsPerRun(100, func() { sink = input.Context(c.ctx) }); n != c.want {
			t.Errorf("%v: %v allocations, want %v", c.ctx, n, c.want)
		}
	}
}

var sink any
