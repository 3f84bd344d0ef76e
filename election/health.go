package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
)

// A checkup calls Config.Healthy during a Run, on a goroutine of its own:
//
//	unchecked, failing ──nil──► passing ──an error, or no answer within RetryPeriod──► failing
//
// Without a check, it is passing.
type checkup struct {
	le *LeaderElector

	mu     sync.Mutex
	err    error           // nil: passing
	passes context.Context // done: failing, or unchecked
	fail   context.CancelCauseFunc
	passed chan struct{} // closed when it passes next
	over   chan struct{} // closed when there are no more calls
}

var errUnchecked = errors.New("election: Healthy has not returned yet")

// checkUp begins the calls, if there is a check, until ctx ends. A panic ends Run.
func (le *LeaderElector) checkUp(ctx context.Context, p *observer) *checkup {
	c := &checkup{le: le, passed: make(chan struct{}), over: make(chan struct{})}
	c.passes, c.fail = context.WithCancelCause(context.Background())
	le.mu.Lock()
	le.health = c
	le.mu.Unlock()
	if le.cfg.Healthy == nil {
		close(c.over)
		return c
	}
	c.err = errUnchecked
	c.fail(c.err)
	go func() {
		defer close(c.over)
		next := true
		for next {
			next = p.guard("Healthy", func() { c.check(ctx) }) && retry.Sleep(ctx, le.cfg.RetryPeriod, nil)
		}
	}()
	return c
}

// check calls Healthy once. The result of a call that took too long does not count.
func (c *checkup) check(run context.Context) {
	period := c.le.cfg.RetryPeriod
	ctx, cancel := context.WithTimeoutCause(run, period, fmt.Errorf("election: Healthy has not returned within %s", period))
	defer cancel()
	inTime := context.AfterFunc(ctx, func() { c.set(run, context.Cause(ctx)) })
	select {
	case c.le.checking <- struct{}{}:
		defer func() { <-c.le.checking }()
	case <-ctx.Done():
		return // a call of an earlier Run has not returned
	}
	if err := c.le.cfg.Healthy(ctx); inTime() {
		c.set(run, err)
	}
}

func (c *checkup) set(run context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.err
	if run.Err() != nil {
		return
	}
	c.err = err
	switch {
	case err == nil && before != nil:
		c.passes, c.fail = context.WithCancelCause(context.Background())
		close(c.passed)
		c.le.log.Info("health check passed; this replica may lead")
	case err != nil && before == nil:
		c.passed = make(chan struct{})
		c.fail(err)
		fallthrough
	case err != nil && errors.Is(before, errUnchecked):
		c.le.log.Error(err, "health check failed; this replica does not lead")
	}
}

// wait waits until the check passes, and returns a context that is done when it fails.
func (c *checkup) wait(ctx context.Context) (passes context.Context, err error) {
	for {
		c.mu.Lock()
		passes, passed := c.passes, c.passed
		c.mu.Unlock()
		if passes.Err() == nil {
			return passes, nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.le.election.lock.Client().Closing():
			return nil, lock.ErrClosed
		}
	}
}

// Err returns why the check fails; nil: it passes, or Run has not begun.
func (c *checkup) Err() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// end waits for a call that has not returned, until the deadline.
func (c *checkup) end(deadline *stopping.Deadline) {
	if !deadline.Wait(c.over) {
		c.le.log.Error(stopping.ErrDeadline, "Run returns although Healthy has not returned")
	}
}

// Campaign waits until the check passes, and then for leadership. If the check fails meanwhile, this replica leaves
// the queue.
func (c *candidacy) Campaign(ctx context.Context) (*leadership, error) {
	for {
		passes, err := c.health.wait(ctx)
		if err != nil {
			return nil, err
		}
		trying, stop := context.WithCancel(ctx)
		unhook := context.AfterFunc(passes, stop)
		l, err := c.le.election.campaign(trying)
		unhook()
		stop()
		if c.passes = passes; err == nil || passes.Err() == nil || ctx.Err() != nil {
			return l, err
		}
	}
}
