package singleton

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// underway is the work that has not returned. Its zero value is ready.
type underway struct {
	mu       sync.Mutex
	attempts map[*attemptUnderWay]struct{}
}

type attemptUnderWay struct {
	name  string // of the job or daemon
	ctx   context.Context
	ended time.Time // when ctx was seen to have ended
}

// begin notes work under ctx until it is over.
func (u *underway) begin(name string, ctx context.Context) (over func()) { //nolint:revive // it is about ctx
	a := &attemptUnderWay{name: name, ctx: ctx}
	u.mu.Lock()
	if u.attempts == nil {
		u.attempts = map[*attemptUnderWay]struct{}{}
	}
	u.attempts[a] = struct{}{}
	u.mu.Unlock()
	unhook := context.AfterFunc(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		a.see()
	})
	return func() {
		unhook()
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.attempts, a)
	}
}

// see notes the end of the context. It asks Err, which looks at the clock: after a
// pause of the process no timer may have run yet.
func (a *attemptUnderWay) see() {
	if a.ended.IsZero() && a.ctx.Err() != nil {
		a.ended = time.Now()
	}
}

// Check reports work that goes on although it was to stop longer than tolerance ago:
// its lease has ended, so that another replica may do it as well, or its drain or its
// time is over. It is nil, or an error that is ErrOverrun and the cause, until the work
// returns. It asks nobody, so that it can serve a liveness probe: a restart is what
// helps against work that does not listen to its context.
func (r *Runner) Check(tolerance time.Duration) error { return r.work.overdue("job", tolerance) }

// overdue is an error for all work whose context ended longer than tolerance ago.
func (u *underway) overdue(what string, tolerance time.Duration) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for a := range u.attempts {
		a.see()
		if a.ended.IsZero() {
			continue
		}
		if d := time.Since(a.ended); d > tolerance {
			errs = append(errs, fmt.Errorf("singleton: %s %q: %w, %s ago: %w", what, a.name, ErrOverrun, d, context.Cause(a.ctx)))
		}
	}
	return errors.Join(errs...)
}
