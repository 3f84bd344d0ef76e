package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
)

// A healthCheck calls Config.Healthy during a Run, on a goroutine of its own:
//
//	unchecked, failing ──nil──► passing ──an error, or no answer within RetryPeriod──► failing
//
// Without Config.Healthy, it is passing.
type healthCheck struct {
	cfg     Config
	log     logr.Logger
	calling chan struct{} // full during a call, which may outlast its Run

	mu      sync.Mutex
	err     error           // of the newest call
	passing context.Context // done unless the check is passing
	fail    context.CancelCauseFunc
	passed  chan struct{} // closed when the check passes next
	over    chan struct{} // closed after the last call
}

var errUnchecked = errors.New("election: Healthy has not returned yet")

// start begins the calls, which continue until ctx ends.
func (h *healthCheck) start(ctx context.Context, crash *holding.Crash) {
	h.passed, h.over = make(chan struct{}), make(chan struct{})
	h.passing, h.fail = context.WithCancelCause(context.Background())
	if h.cfg.Healthy == nil {
		close(h.over)
		return
	}
	h.err = errUnchecked
	h.fail(h.err)
	go func() {
		defer close(h.over)
		again := true
		for again {
			again = crash.Guard(h.log, "Healthy", func() { h.check(ctx) }) && retry.Sleep(ctx, h.cfg.RetryPeriod, nil)
		}
	}()
}

// check calls Healthy once. The result of a call that took too long does not count.
func (h *healthCheck) check(run context.Context) {
	period := h.cfg.RetryPeriod
	ctx, cancel := context.WithTimeoutCause(run, period, fmt.Errorf("election: Healthy has not returned within %s", period))
	defer cancel()
	inTime := context.AfterFunc(ctx, func() { h.set(run, context.Cause(ctx)) }) // inTime() is false after the period
	select {
	case h.calling <- struct{}{}:
		defer func() { <-h.calling }()
	case <-ctx.Done():
		return // a call of an earlier Run has not returned
	}
	if err := h.cfg.Healthy(ctx); inTime() {
		h.set(run, err)
	}
}

// set records the result of a call, unless the Run is over.
func (h *healthCheck) set(run context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.err
	if run.Err() != nil {
		return
	}
	h.err = err
	switch {
	case err == nil && before != nil:
		h.passing, h.fail = context.WithCancelCause(context.Background())
		close(h.passed)
		h.log.Info("health check passed; this replica may lead")
	case err != nil && before == nil:
		h.passed = make(chan struct{})
		h.fail(err)
		fallthrough
	case err != nil && errors.Is(before, errUnchecked):
		h.log.Error(err, "health check failed; this replica does not lead")
	}
}

// wait waits until the check passes, and returns a context that is done when it fails.
func (h *healthCheck) wait(ctx context.Context, closing <-chan struct{}) (passing context.Context, err error) {
	for {
		h.mu.Lock()
		passing, passed := h.passing, h.passed
		h.mu.Unlock()
		if passing.Err() == nil {
			return passing, nil
		}
		select {
		case <-passed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-closing:
			return nil, lock.ErrClosed
		}
	}
}

// Err returns why the check fails, or nil. A nil healthCheck passes.
func (h *healthCheck) Err() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// end waits for a call that has not returned, until the deadline.
func (h *healthCheck) end(deadline *stopping.Deadline) {
	if !deadline.Wait(h.over) {
		h.log.Error(stopping.ErrDeadline, "Run returns although Healthy has not returned")
	}
}
