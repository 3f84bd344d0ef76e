package holding

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock"
)

// ErrCallback is the cause of a Run's context if a callback did not return normally.
var ErrCallback = errors.New("noonlock: a callback panicked or called runtime.Goexit")

// A Crash ends a Run of an elector or a runner when a callback on another goroutine panics or calls runtime.Goexit. Run
// itself then does the same, see Continue.
type Crash struct {
	Cancel context.CancelCauseFunc // ends the context of the Run

	mu  sync.Mutex
	err error // the first failure
}

// NewCrash returns a Crash and the context for the Run. The Crash ends this context.
func NewCrash(ctx context.Context) (run context.Context, c *Crash) {
	run, cancel := context.WithCancelCause(ctx)
	return run, &Crash{Cancel: cancel}
}

// Guard calls a callback and reports whether it has returned. A panic or Goexit ends the Run.
func (c *Crash) Guard(log logr.Logger, name string, callback func()) (normal bool) {
	defer func() {
		if normal {
			return
		}
		err := ErrCallback
		if value := recover(); value != nil { // nil after a Goexit
			err = &noonlock.PanicError{Value: value, Stack: debug.Stack()}
		}
		log.Error(ErrCallback, name+" panicked or called runtime.Goexit; ending Run")
		c.Fail(err, ErrCallback)
	}()
	callback()
	return true
}

// Fail ends the context of the Run with a cause. err is the error of the Run, unless Fail was called before.
func (c *Crash) Fail(err, cause error) {
	c.mu.Lock()
	c.err = cmp.Or(c.err, err)
	c.mu.Unlock()
	c.Cancel(cause)
}

// Err returns the error of the first failure.
func (c *Crash) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Continue panics or calls Goexit like the callback that failed, on the goroutine of Run's caller.
func (c *Crash) Continue() {
	err := c.Err()
	switch panics, isPanic := err.(*noonlock.PanicError); { //nolint:errorlint // it is not wrapped
	case isPanic:
		panic(panics)
	case errors.Is(err, ErrCallback):
		runtime.Goexit()
	}
}
