package singleton

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOverrun is matched by the error of Check: work still runs although its context has
// ended.
var ErrOverrun = errors.New("singleton: the work still runs although its context has ended")

// underway is the set of work that has not returned. Its zero value is ready to use.
type underway struct {
	mu       sync.Mutex
	attempts map[*attemptUnderWay]struct{}
}

type attemptUnderWay struct {
	name  string // of the job
	ctx   context.Context
	ended time.Time // when the end of ctx was noticed
}

// begin adds work that runs under ctx until over is called.
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

// see records the end of the context. It calls Err, which compares with the clock: after a
// suspension of the process no timer may have fired yet.
func (a *attemptUnderWay) see() {
	if a.ended.IsZero() && a.ctx.Err() != nil {
		a.ended = time.Now()
	}
}

// Check returns an error while work still runs although its context ended longer than
// tolerance ago. Its lease has ended, so another replica may run the tick too, or its drain
// or timeout is over. The error matches ErrOverrun and the cause, until the work returns.
// Check sends no request. It is meant for a liveness probe: a restart stops work that
// ignores its context.
func (r *Runner) Check(tolerance time.Duration) error {
	r.work.mu.Lock()
	defer r.work.mu.Unlock()
	var errs []error
	for a := range r.work.attempts {
		a.see()
		if a.ended.IsZero() {
			continue
		}
		if d := time.Since(a.ended); d > tolerance {
			errs = append(errs, fmt.Errorf("singleton: job %q: %w, %s ago: %w", a.name, ErrOverrun, d, context.Cause(a.ctx)))
		}
	}
	return errors.Join(errs...)
}
