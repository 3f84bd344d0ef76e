package holding

import (
	"errors"
	"runtime"
	"runtime/debug"

	"github.com/noonlock/noonlock"
)

// ErrCallback says that a callback did not return normally. It is the cause of the context after a panic or Goexit.
var ErrCallback = errors.New("noonlock: a callback panicked or called runtime.Goexit")

// Guarded calls a function of the user on a goroutine other than Run's, and reports whether it has returned. After a
// panic or Goexit it calls crashed with a *noonlock.PanicError or ErrCallback.
func Guarded(call func(), crashed func(why error)) (normal bool) {
	defer func() {
		if normal {
			return
		}
		why := ErrCallback
		if value := recover(); value != nil { // nil after a Goexit
			why = &noonlock.PanicError{Value: value, Stack: debug.Stack()}
		}
		crashed(why)
	}()
	call()
	return true
}

// Continue lets a panic or Goexit that Guarded has stopped continue in Run's caller.
func Continue(crashed error) {
	switch panics, isPanic := crashed.(*noonlock.PanicError); { //nolint:errorlint // it is not wrapped
	case isPanic:
		panic(panics)
	case errors.Is(crashed, ErrCallback):
		runtime.Goexit()
	}
}
