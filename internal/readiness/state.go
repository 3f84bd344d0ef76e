// Package readiness records whether a worker's own requests and its work succeed. A PING is
// not enough: a server that answers it may refuse every other request.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// A State tells whether a worker is ready, from the result of its latest request. The errors of Unrecorded and Blocked
// outlast successful requests. The zero value is the state of a worker that does not run. It is safe for concurrent
// use.
type State struct {
	mu      sync.Mutex
	running bool
	err     error
	until   time.Time // time up to which the newest success is valid
	reports *Reports  // where the newest failure was reported
	kind    string    // kind of that failure, empty after a success

	unrecorded   error
	unrecordedAt time.Time // time of the work that was not recorded
	blocked      error
}

// forever limits the validity of a success, so that adding it to the current time does not overflow.
const forever = 100 * 365 * 24 * time.Hour

// Run marks the worker as running until ctx ends or end is called. Until the first request is answered, Err returns an
// error. After end has returned, nothing of this Run changes the State, not even the end of ctx. Call end once.
func (s *State) Run(ctx context.Context) (end func()) {
	s.set(true, errors.New("noonlock: no answer from the server yet"), time.Time{})
	noted := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(noted)
		s.Stop()
	})
	return func() {
		if !unhook() {
			<-noted // the hook has started on another goroutine
		}
		s.Stop() // again: a request may have failed since the end of ctx
	}
}

// Stop marks the worker as stopped.
func (s *State) Stop() { s.set(false, nil, time.Time{}) }

func (s *State) set(running bool, err error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endReport(false)
	s.running, s.err, s.until, s.blocked = running, err, until, nil
}

func (s *State) endReport(recovered bool) {
	if s.kind != "" {
		s.reports.mu.Lock()
		defer s.reports.mu.Unlock()
		s.reports.remove(s.kind, recovered)
		s.kind = ""
	}
}

// Works records a success that is valid for the given time.
func (s *State) Works(valid time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endReport(true)
	s.err, s.until = nil, time.Now().Add(min(valid, forever))
}

// Failed records a failure, which is valid until the next result, and reports it. log is the worker's.
func (s *State) Failed(to *Reports, log logr.Logger, err error, temporary bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.reports, s.kind = err, to, to.add(s.kind, log, err, temporary)
}

// Unrecorded sets the error of a worker that could not record the outcome of its work. The work was due at the
// time at. Recorded ends the error.
func (s *State) Unrecorded(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrecorded, s.unrecordedAt = err, at
}

// Recorded ends the error of Unrecorded for work up to a time. With the zero time, it ends the error for all work.
func (s *State) Recorded(upTo time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if upTo.IsZero() || !upTo.Before(s.unrecordedAt) {
		s.unrecorded = nil
	}
}

// Blocked sets the error that keeps the worker from its work although its requests succeed, or ends it with nil. It
// reports whether the worker became blocked or unblocked.
func (s *State) Blocked(err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = (err == nil) != (s.blocked == nil)
	s.blocked = err
	return changed
}

// Err returns nil if the worker is ready, and otherwise the reason.
func (s *State) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.running:
		return errors.New("noonlock: not running")
	case s.err != nil:
		return s.err
	}
	if old := time.Since(s.until); old > 0 {
		return fmt.Errorf("noonlock: no answer from the server for %s longer than expected", old.Truncate(time.Millisecond))
	}
	if s.blocked != nil {
		return s.blocked
	}
	return s.unrecorded
}

type answeredKey struct{}

// WithAnswers returns a context that carries the function answered. Package lock calls it through [Answered]
// with the result of each request that acquires a lock.
func WithAnswers(ctx context.Context, answered func(err error)) context.Context {
	return context.WithValue(ctx, answeredKey{}, answered)
}

// WithoutAnswers returns a context without the function of WithAnswers. Leases use this context, because they outlive
// the function.
func WithoutAnswers(ctx context.Context) context.Context {
	if Answers(ctx) {
		return WithAnswers(ctx, nil)
	}
	return ctx
}

// Answers reports whether ctx carries a function of WithAnswers.
func Answers(ctx context.Context) bool { return answeredOf(ctx) != nil }

// Answered calls the function that WithAnswers stored in ctx, if there is one.
func Answered(ctx context.Context, err error) {
	if answered := answeredOf(ctx); answered != nil {
		answered(err)
	}
}

func answeredOf(ctx context.Context) func(err error) {
	answered, _ := ctx.Value(answeredKey{}).(func(err error))
	return answered
}
