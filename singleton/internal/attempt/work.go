package attempt

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
)

// The errors of package singleton with the same names.
var (
	ErrPanic          = errors.New("singleton: the work panicked")
	ErrTimeout        = errors.New("singleton: the attempt timed out")
	ErrUnknownOutcome = errors.New("singleton: outcome unknown")
)

var errExited = errors.New("singleton: the work called runtime.Goexit")

// withCause joins an error with a cause that it does not name itself.
func withCause(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return errors.Join(err, cause)
}

// outcomeUnknown reports whether err means that the work may have taken effect.
func outcomeUnknown(err error) bool {
	var says interface{ OutcomeUnknown() bool }
	return errors.Is(err, ErrUnknownOutcome) || errors.As(err, &says) && says.OutcomeUnknown()
}

// permanent reports whether err means that no other attempt must be made.
func permanent(err error) bool {
	var says interface{ Permanent() bool }
	return errors.As(err, &says) && says.Permanent()
}

// Protect calls work on its own goroutine and waits for its end. A panic becomes an error
// that matches ErrPanic, and runtime.Goexit becomes an error too. Otherwise they would end
// the goroutine that holds the lease.
func Protect(log logr.Logger, work func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { result <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
				log.Error(err, "the work panicked", "stack", string(debug.Stack()))
			}
		}()
		err = work()
	}()
	return <-result
}

// panicked returns the error for work that panicked with a value.
func panicked(value any) error {
	if cause, ok := value.(error); ok {
		return fmt.Errorf("%w: %w", ErrPanic, cause) // cause may have a method OutcomeUnknown
	}
	return fmt.Errorf("%w: %v", ErrPanic, value)
}
