// Package readiness keeps whether something can do its work, as its own requests have
// found: a server that answers a PING may refuse everything else.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
)

// A State is what was found last. Its zero value is that of something that does not
// run. It is safe for concurrent use.
type State struct {
	mu      sync.Mutex
	running bool
	err     error
	until   time.Time // when the last finding is too old
	told    string    // the kind of failure that was logged last; empty: none
}

// forever is far from where adding to the time overflows.
const forever = 100 * 365 * 24 * time.Hour

var (
	errNotRunning = errors.New("it is not running")
	errNotYet     = errors.New("the server has not answered yet")
)

// Run says that it runs from now until ctx ends or end is called, and nothing is known
// yet. The end has been noted when end returns, and does not reach a later Run. It is
// called once.
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
		<-noted // it has been started, on a goroutine of its own
	}
}

func (s *State) set(running bool, err error, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.err, s.until, s.told = running, err, until, ""
}

// Works notes a success, which stands for that long unless something else is noted. It
// reports whether a failure was logged before that.
func (s *State) Works(stands time.Duration) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = s.told != ""
	s.err, s.until, s.told = nil, time.Now().Add(min(stands, forever)), ""
	return again
}

// Failed notes a failure, which stands until something else is noted. It reports
// whether to log it: a temporary one once in a row, any other once for each text.
func (s *State) Failed(err error, temporary bool) (tell bool) {
	kind := "temporary"
	if !temporary {
		// Without the name of the call, and without digits: the one error is told by
		// several calls, and addresses change from one try to the next.
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
	tell = kind != s.told
	s.err, s.told = err, kind
	return tell
}

// Err is nil if it works now, or why not.
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
		return fmt.Errorf("nothing was heard of the server for %s longer than expected", old.Truncate(time.Millisecond))
	}
	return nil
}

type answersKey struct{}

// WithAnswers returns a context whose user calls answered with what became of each
// request that asks for a lock: nil, or the error.
func WithAnswers(ctx context.Context, answered func(err error)) context.Context {
	return context.WithValue(ctx, answersKey{}, answered)
}

// Answered is such a call.
func Answered(ctx context.Context, err error) {
	if answered, ok := ctx.Value(answersKey{}).(func(error)); ok {
		answered(err)
	}
}
