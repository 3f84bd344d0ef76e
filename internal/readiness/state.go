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

// A State contains the result of the latest request. It may also contain a doubt about the
// work, or what hinders it; successful requests end neither. Its zero value is the state of a
// worker that does not run. It is safe for concurrent use.
type State struct {
	mu      sync.Mutex
	running bool
	err     error
	until   time.Time // when the latest success is too old
	reports *Reports  // which have the failure, if there is a kind
	kind    string    // of the latest failure; empty: the worker does not fail
	doubt   error     // nil: none
	doubted time.Time // the time of the work that the doubt is about
	hinders error     // see Hindered
}

// forever is large, but far from overflow when it is added to the current time.
const forever = 100 * 365 * 24 * time.Hour

var (
	errNotRunning = errors.New("noonlock: not running")
	errNotYet     = errors.New("noonlock: no answer from the server yet")
)

// Run marks the worker as running until ctx ends or end is called. Until the first
// request is answered, Err returns an error. When end returns, the end is recorded and
// cannot affect a later Run. Call end once.
func (s *State) Run(ctx context.Context) (end func()) {
	s.set(true, errNotYet, time.Time{})
	noted := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(noted)
		s.Stop()
	})
	return func() {
		if !unhook() {
			<-noted // the hook has started on another goroutine
		}
		s.Stop() // again, as a request may have failed since
	}
}

// Stop marks the worker as stopped.
func (s *State) Stop() { s.set(false, nil, time.Time{}) }

func (s *State) set(running bool, err error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(false)
	s.running, s.err, s.until, s.hinders = running, err, until, nil
}

// leave ends the failure that is reported, if there is one.
func (s *State) leave(recovered bool) {
	if s.kind != "" {
		s.reports.mu.Lock()
		defer s.reports.mu.Unlock()
		s.reports.leave(s.kind, recovered)
		s.kind = ""
	}
}

// Works records a success that is valid for the given time.
func (s *State) Works(valid time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(true)
	s.err, s.until = nil, time.Now().Add(min(valid, forever))
}

// Failed records a failure, which is valid until the next result, and reports it. log is that of the worker.
func (s *State) Failed(to *Reports, log logr.Logger, err error, temporary bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.reports, s.kind = err, to, to.fails(s.kind, log, err, temporary)
}

// Doubt records a failure of the work of that time, which lasts until Settle. It replaces an
// earlier one.
func (s *State) Doubt(at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt, s.doubted = err, at
}

// Settle ends a doubt about work of that time or earlier; with the zero time, any doubt.
func (s *State) Settle(upTo time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if upTo.IsZero() || !upTo.Before(s.doubted) {
		s.doubt = nil
	}
}

// Hindered records why the worker cannot do its work, although its requests succeed; nil: it
// can. It reports whether that has changed.
func (s *State) Hindered(err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = (err == nil) != (s.hinders == nil)
	s.hinders = err
	return changed
}

// Err returns nil if the worker is ready, and otherwise the reason.
func (s *State) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.running:
		return errNotRunning
	case s.err != nil:
		return s.err
	}
	if old := time.Since(s.until); old > 0 {
		return fmt.Errorf("noonlock: no answer from the server for %s longer than expected", old.Truncate(time.Millisecond))
	}
	if s.hinders != nil {
		return s.hinders
	}
	return s.doubt
}

// An asking is the context of a caller that hears of the answers.
type asking struct {
	context.Context
	answered func(err error)
}

type askingKey struct{}

func (a *asking) Value(key any) any {
	if key == (askingKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// WithAnswers returns a context that carries the function answered. The user of the
// context calls it through [Answered] with the result of each request for a lock.
func WithAnswers(ctx context.Context, answered func(err error)) context.Context {
	return &asking{ctx, answered}
}

// WithoutAnswers returns the context that a call of WithAnswers got, for what outlives that function.
func WithoutAnswers(ctx context.Context) context.Context {
	if a, ok := ctx.(*asking); ok {
		return a.Context
	}
	return ctx
}

// Answers reports whether ctx is from WithAnswers.
func Answers(ctx context.Context) bool { return ctx.Value(askingKey{}) != nil }

// Answered calls the function that WithAnswers stored in ctx, if there is one.
func Answered(ctx context.Context, err error) {
	if a, ok := ctx.Value(askingKey{}).(*asking); ok {
		a.answered(err)
	}
}
