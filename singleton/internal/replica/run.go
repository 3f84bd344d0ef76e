package replica

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The errors of package singleton with the same names.
var (
	ErrStopping = errors.New("singleton: the runner is stopping")
	ErrRemoved  = errors.New("singleton: the job was removed from the runner")
)

// Run runs the job until ctx ends, and waits until its work has returned. Only one Run of a job may be under way.
func (j *Job) Run(ctx context.Context) { _ = j.newFollower().follow(ctx) }

// Once does the work of a definition once for all replicas. If the run has failed, Once returns its entry of the
// history and, if the work was done on this replica, the error of the work.
func (r *Replica) Once(ctx context.Context, def Definition) (failed *ledger.Run, err error) {
	c := &once{}
	j := r.NewJob(c.observed(ctx, r.log, def))
	defer j.Forget()
	f := j.newFollower()
	f.once, f.persistent = c, false
	err = f.follow(ctx)
	switch {
	case c.failed != nil:
		return c.failed, c.err
	case c.done:
		return nil, nil //nolint:nilnil // no failed run is no failure
	}
	for _, cause := range []error{ctx.Err(), context.Cause(ctx), c.err} {
		if cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
	}
	return nil, err
}

// follow runs the job until ctx ends or a call of Once is done, and waits until its work has returned.
func (f *follower) follow(ctx context.Context) error {
	cfg := f.r.cfg
	var done func()
	f.stop, done = stopping.New(ctx, cfg.ShutdownTimeout, (cfg.ShutdownTimeout-cfg.Drain)/5)
	defer done()
	f.r.mu.Lock()
	f.r.running[f.job] = struct{}{}
	f.r.mu.Unlock()
	defer func() {
		f.r.mu.Lock()
		defer f.r.mu.Unlock()
		delete(f.r.running, f.job)
	}()
	work, free := f.r.drained(ctx)
	defer free()
	defer f.wg.Wait()
	defer f.leave(ctx)
	defer func() { f.queued = false; f.releaseSlot() }()
	defer f.def.Ledger.Watch(func(end *ledger.RunID, succeeded bool) { f.job.post(event{end: end, succeeded: succeeded}) })()
	defer f.ready.Run(ctx)() // after the end of ctx, the job claims nothing, so it is not ready
	return f.run(ctx, func() (pause time.Duration, done bool, err error) {
		pause, err = f.step(ctx, work)
		return pause, f.once != nil && f.once.done, err
	})
}

// drained returns the context of the work: it ends when ctx has ended and the drain
// is over.
func (r *Replica) drained(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		retry.Sleep(work, r.cfg.Drain, nil)
		cause := ErrStopping
		if errors.Is(context.Cause(ctx), ErrRemoved) {
			cause = ErrRemoved
		}
		cancel(cause)
	})
	return work, func() {
		unhook()
		cancel(nil)
	}
}

// leave deregisters this replica, which claims no more ticks.
func (f *follower) leave(ctx context.Context) {
	left, stop := f.stop.Context(ctx, 0)
	defer stop()
	trying, cancel := context.WithTimeout(left, f.stop.Last())
	defer cancel()
	if err := f.def.Ledger.Leave(trying, f.state); err != nil && !errors.Is(err, lockcore.ErrClosed) {
		lock.Log(f.log, err, "failed to deregister replica; peers will time it out")
	}
}
