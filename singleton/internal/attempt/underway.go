package attempt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrOverrun is singleton.ErrOverrun.
var ErrOverrun = errors.New("singleton: the work still runs although its context has ended")

// Underway is the set of work that has not returned. Its zero value is ready to use.
type Underway struct {
	mu   sync.Mutex
	work map[*work]struct{}
}

type work struct {
	job   string
	ctx   context.Context
	ended time.Time // when ctx was first seen to have ended
}

// Begin adds work that runs under ctx until end is called.
func (u *Underway) Begin(job string, ctx context.Context) (end func()) { //nolint:revive // the job is the subject
	w := &work{job: job, ctx: ctx}
	u.mu.Lock()
	if u.work == nil {
		u.work = map[*work]struct{}{}
	}
	u.work[w] = struct{}{}
	u.mu.Unlock()
	unhook := context.AfterFunc(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		w.observe()
	})
	return func() {
		unhook()
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.work, w)
	}
}

// observe records that the context has ended. It calls Err, because after a suspension of the process no timer may have
// fired yet: Err of a lease's context compares with the clock.
func (w *work) observe() {
	if w.ended.IsZero() && w.ctx.Err() != nil {
		w.ended = time.Now()
	}
}

// Check is singleton.Runner.Check.
func (u *Underway) Check(tolerance time.Duration) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for w := range u.work {
		w.observe()
		if w.ended.IsZero() {
			continue
		}
		if d := time.Since(w.ended); d > tolerance {
			errs = append(errs, fmt.Errorf("singleton: job %q: %w, %s ago: %w", w.job, ErrOverrun, d, context.Cause(w.ctx)))
		}
	}
	return errors.Join(errs...)
}
