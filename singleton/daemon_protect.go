package singleton

import (
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
)

// protect calls work on a goroutine of its own, waits for its end, and makes an
// error of a panic (ErrPanic) or of a goroutine that work has ended, so that
// neither takes the lease with it.
func protect(log logr.Logger, work func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if p := recover(); p != nil {
				if cause, ok := p.(error); ok {
					err = fmt.Errorf("%w: %w", ErrPanic, cause) // which may say that its outcome is unknown
				} else {
					err = fmt.Errorf("%w: %v", ErrPanic, p)
				}
				log.Error(err, "the work panicked", "stack", string(debug.Stack()))
			}
			result <- err
		}()
		err = work()
	}()
	return <-result
}
