package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// Run campaigns for the daemon's lease. While this replica holds it, Run keeps the function
// running, until ctx ends. It then waits until the function has returned, however long that
// takes, and renews the lease meanwhile, so no other replica starts the function. Finally
// it releases the lease to the next replica and returns nil.
//
// After a lost lease Run campaigns again, once the function has returned. An outage of the
// server does not end it. The error is lockcore.ErrClosed if the Client was closed, or
// ErrRunning if Run is already running.
func (s *DaemonRunner) Run(ctx context.Context) error {
	leave, ok := s.gate.Enter(ctx, s.lock.Client().Flush)
	if !ok {
		return fmt.Errorf("singleton: daemon %q: %w", s.name, ErrRunning)
	}
	defer leave()

	deadline, done := stopping.New(ctx, s.cfg.ShutdownTimeout, s.cfg.ShutdownTimeout/5)
	defer done()
	loop := holding.Loop[*lock.Lease]{
		Holder: &daemonRun{DaemonRunner: s, pauses: retry.Doubling(s.cfg.Backoff, s.cfg.MaxBackoff)}, TTL: s.cfg.TTL,
		Retry: retry.Pauses(50*time.Millisecond, 2*time.Second),
		Ready: &s.ready, Deadline: deadline, Log: s.log, Reports: s.lock.Client().Campaigns(),
	}
	if err := loop.Run(ctx); err != nil {
		return fmt.Errorf("singleton: daemon %q: %w", s.name, err)
	}
	return nil
}

// A daemonRun is one call of Run. It implements holding.Holder.
type daemonRun struct {
	*DaemonRunner
	pauses retry.Backoff
	out    time.Duration // the pause before the next campaign
}

// Prepare finds out whether a right is missing that only a holder needs.
func (d *daemonRun) Prepare(ctx context.Context) error {
	return d.lock.CheckRights(ctx, d.lock.Client().MutexScripts()...)
}

func (d *daemonRun) Campaign(ctx context.Context) (*lock.Lease, error) {
	lease, _, err := d.lock.Lock(ctx, d.lock.Client().Mutex())
	return lease, err
}

// Work keeps the function running until ctx or the lease ends, or until it has ended early
// too often.
func (d *daemonRun) Work(ctx context.Context, lease *lock.Lease, _ time.Duration) {
	log := d.log.WithValues("token", lease.Token())
	d.lock.Hint(daemonNews(d.lock))
	d.out = 0
	for failed := 0; ctx.Err() == nil && lease.Context().Err() == nil; {
		log.Info("daemon starts")
		d.metrics.starts.Inc()
		began := time.Now()
		ended, err := d.start(ctx, lease)
		ran := time.Since(began)
		switch {
		case ctx.Err() != nil:
			log.Info("daemon stopped", "ran", ran)
			return
		case ended != nil:
			log.Error(ended, "daemon stopped: the lease has ended; campaigning again", "ran", ran)
			d.metrics.lost.Inc()
			return
		}
		if ran >= d.cfg.MaxBackoff {
			failed = 0
			d.pauses.Reset()
		}
		failed++
		pause := d.pauses.NextBackOff()
		if d.cfg.HandOverAfter > 0 && failed >= d.cfg.HandOverAfter {
			log.Error(cmp.Or(err, errReturnedNil), "daemon ended by itself; handing over to the next replica", "ran", ran, "failed", failed, "pause", pause)
			d.out = pause
			return
		}
		log.Error(cmp.Or(err, errReturnedNil), "daemon ended by itself; restarting", "ran", ran, "pause", pause)
		retry.Sleep(ctx, pause, lease.Context().Done())
	}
}

// start runs the function once and waits until it has returned. ended is the cause of its
// context if that was done, otherwise nil.
func (s *DaemonRunner) start(ctx context.Context, lease *lock.Lease) (ended, err error) {
	work, stop := lease.Bind(ctx)
	defer stop()
	defer s.work.begin(s.name, lease.Context())() //nolint:contextcheck // the lease ends later than ctx
	s.metrics.running.Inc()                       // not Set: a process may run several of one name
	defer s.metrics.running.Dec()
	err = protect(s.log, func() error { return s.do(work) })
	if work.Err() != nil {
		ended = context.Cause(work)
	}
	return ended, err
}

func (d *daemonRun) Release(ctx context.Context, lease *lock.Lease) error { return lease.Unlock(ctx) }

func (d *daemonRun) Released(lease *lock.Lease, _, err error) {
	d.lock.Hint(daemonNews(d.lock))
	if err != nil && !errors.Is(err, lockcore.ErrNotHeld) { // Work has logged the end of the lease
		lock.Log(d.log, err, "failed to hand over daemon; its lease will expire", "token", lease.Token())
	}
}

func (d *daemonRun) Next(error, time.Duration) (pause time.Duration, again bool) { return d.out, true }

var errReturnedNil = errors.New("singleton: the function returned nil")
