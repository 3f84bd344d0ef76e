package singleton

import (
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/singleton/schedule"
)

// A guarded is a Schedule of the application. If its Next panics, Next of the guarded panics with a
// *scheduleError, from which the step of the job recovers.
type guarded struct{ own schedule.Schedule }

// A scheduleError is a panic of Next.
type scheduleError struct{ value any }

func (e *scheduleError) Error() string {
	return fmt.Sprintf("singleton: Next of the job's Schedule panicked: %v", e.value)
}

func (g guarded) Next(t time.Time) time.Time {
	defer func() {
		if p := recover(); p != nil {
			panic(&scheduleError{p})
		}
	}()
	return g.own.Next(t)
}

// catch sets err if the goroutine panics with a *scheduleError. It must be deferred.
func catch(err *error) {
	p := recover()
	if p == nil {
		return
	}
	broken, ok := p.(*scheduleError)
	if !ok {
		panic(p)
	}
	*err = broken
}

// isBroken reports whether err is a *scheduleError.
func isBroken(err error) bool {
	_, ok := errors.AsType[*scheduleError](err)
	return ok
}
