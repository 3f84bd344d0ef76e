// Package readiness records whether a worker's own requests and its work succeed. A PING is
// not enough: a server that answers it may refuse every other request.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

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
	logged  string    // kind of the failure that was logged last; empty: none
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
	stop := func() { s.set(false, nil, time.Time{}) }
	noted := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(noted)
		stop()
	})
	return func() {
		if unhook() {
			stop()
			return
		}
		<-noted // the hook has started on another goroutine
	}
}

func (s *State) set(running bool, err error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.err, s.until, s.logged, s.hinders = running, err, until, "", nil
}

// Works records a success that is valid for the given time. It reports whether a failure
// was logged before it.
func (s *State) Works(valid time.Duration) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = s.logged != ""
	s.err, s.until, s.logged = nil, time.Now().Add(min(valid, forever)), ""
	return again
}

// Failed records a failure, which is valid until the next result, and logs it. Of several
// temporary failures in a row, it logs the first one. It logs other failures as errors, once
// per text.
func (s *State) Failed(log logr.Logger, message string, err error, temporary bool) {
	switch {
	case !s.failed(err, temporary):
	case temporary:
		log.Info(message, "err", err)
	default:
		log.Error(err, message)
	}
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

// failed records a failure and reports whether to log it.
func (s *State) failed(err error, temporary bool) (isNew bool) {
	kind := "temporary"
	if !temporary {
		// Several calls return the same error, and addresses differ between tries. So the
		// kind contains neither the name of the call nor digits.
		text := err.Error()
		if at := strings.LastIndex(text, `": `); at >= 0 {
			text = text[at:]
		}
		kind = "lasting " + strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) || strings.ContainsRune(`": `, r) {
				return -1
			}
			return r
		}, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew = kind != s.logged
	s.err, s.logged = err, kind
	return isNew
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

type answersKey struct{}

// WithAnswers returns a context that carries the function answered. The user of the
// context calls it through [Answered] with the result of each request for a lock.
func WithAnswers(ctx context.Context, answered func(err error)) context.Context {
	return context.WithValue(ctx, answersKey{}, answered)
}

// Answered calls the function that WithAnswers stored in ctx, if there is one.
func Answered(ctx context.Context, err error) {
	if answered, ok := ctx.Value(answersKey{}).(func(error)); ok {
		answered(err)
	}
}
