package singleton

import (
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/singleton/schedule"
)

// nextWithin is how long Next of a Schedule of the application may take.
const nextWithin = 5 * time.Second

// A guarded is a Schedule of the application. If its Next panics or takes too long, Next of the
// guarded panics with a *scheduleError, from which the step of the job recovers. Only one
// goroutine at a time may call it.
type guarded struct {
	own  schedule.Schedule
	late <-chan struct{} // closed when a call that took too long has returned; nil: none
}

// A scheduleError says why a Schedule has no result.
type scheduleError struct{ text string }

func (e *scheduleError) Error() string { return "singleton: Next of the job's Schedule " + e.text }

func (g *guarded) Next(t time.Time) (next time.Time) {
	select {
	case <-g.late:
		g.late = nil
	default:
		if g.late != nil {
			panic(&scheduleError{"has not returned from an earlier call"})
		}
	}
	answer := make(chan time.Time, 1)
	broken := &scheduleError{"called runtime.Goexit"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p := guard(func() { answer <- g.own.Next(t) }); p != nil {
			broken = &scheduleError{fmt.Sprintf("panicked with a value of type %T", p)}
			guard(func() { broken = &scheduleError{fmt.Sprintf("panicked: %v", p)} })
		}
	}()
	timer := time.NewTimer(nextWithin)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		g.late = done
		panic(&scheduleError{"has not returned for " + nextWithin.String()})
	}
	select {
	case next = <-answer:
		return next
	default:
		panic(broken)
	}
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
