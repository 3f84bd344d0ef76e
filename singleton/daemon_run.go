package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// Run stands in line for the daemon and keeps its function going while it is
// this replica's turn, until ctx ends. It then waits until the function has
// returned, however long that takes: the lease is renewed meanwhile, so no other
// replica starts it before. It gives the lease to the next in line and returns
// nil.
//
// After a lost lease it stands in line again, when the function has returned. A
// server that is away is waited for. The error is lockcore.ErrClosed if the
// Client was closed, ErrRunning if Run is running.
func (s *Daemon) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("singleton: daemon %q: %w", s.name, ErrRunning)
	}
	defer func() {
		s.lines.Flush(context.WithoutCancel(ctx))
		s.running.Store(false)
	}()

	deadline, done := stopping.New(ctx, s.cfg.ShutdownTimeout, s.cfg.ShutdownTimeout/5)
	defer done()
	pause := s.pauses()
	away := retry.Pauses(50*time.Millisecond, 2*time.Second)
	defer s.ready.Run(ctx)()
	asking := readiness.WithAnswers(ctx, func(err error) {
		if ctx.Err() == nil {
			s.answered(err)
		}
	})
	for ctx.Err() == nil {
		lease, err := s.lock.Lock(asking)
		switch {
		case err == nil:
			away.Reset()
			s.ready.Works(math.MaxInt64) // while the lease is held
			out := s.hold(ctx, lease, deadline, pause)
			s.ready.Works(out + s.patience())
			rest(ctx, nil, out)
		case ctx.Err() != nil:
		case errors.Is(err, lockcore.ErrClosed):
			return fmt.Errorf("singleton: daemon %q: %w", s.name, err)
		default:
			s.answered(err)
			rest(ctx, nil, away.NextBackOff())
		}
	}
	return nil
}

// answered takes what became of a request for the lease.
func (s *Daemon) answered(err error) {
	const text = "cannot stand in line; trying again"
	switch temporary := err != nil && lockcore.IsTemporary(err); {
	case err == nil:
		if s.ready.Works(s.patience()) {
			s.cfg.Logger.Info("the server answers again")
		}
	case !s.ready.Failed(err, temporary):
	case temporary:
		s.cfg.Logger.Info(text, "err", err)
	default:
		s.cfg.Logger.Error(err, text)
	}
}

// patience is how long a replica in line may hear nothing: it looks once in 1.1 TTLs.
func (s *Daemon) patience() time.Duration { return 4 * max(s.cfg.TTL, time.Second) }

func (s *Daemon) pauses() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(s.cfg.Backoff), backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0.1),
		backoff.WithMaxInterval(s.cfg.MaxBackoff), backoff.WithMaxElapsedTime(0))
}

// hold keeps the function going under a lease, gives the lease back when the
// function has returned for the last time, and says how long to stay out of the
// line.
func (s *Daemon) hold(ctx context.Context, lease engine.Lease, deadline *stopping.Deadline, pause *backoff.ExponentialBackOff) time.Duration {
	log := s.cfg.Logger.WithValues("token", lease.Token())
	defer func() {
		// Not held any more: then the reason was told when the function ended.
		left, cancel := deadline.Context(ctx, 0)
		defer cancel()
		giving, stop := context.WithTimeout(left, handOverWithin)
		defer stop()
		if err := lease.Unlock(giving); err != nil && !errors.Is(err, lockcore.ErrNotHeld) {
			log.Info("the daemon could not be handed over; its lease ends by itself", "err", err)
		}
	}()
	for failed := 0; ctx.Err() == nil && lease.Context().Err() == nil; {
		log.Info("daemon starts")
		s.metrics.starts.Inc()
		began := time.Now()
		ended, err := s.start(ctx, lease)
		ran := time.Since(began)
		switch {
		case ctx.Err() != nil:
			log.Info("daemon stopped", "ran", ran)
			return 0
		case ended != nil:
			log.Error(ended, "daemon stopped: the lease has ended; standing in line again", "ran", ran)
			s.metrics.lost.Inc()
			return 0
		}
		if ran >= s.cfg.ResetAfter {
			failed = 0
			pause.Reset()
		}
		failed++
		next := pause.NextBackOff()
		if s.cfg.HandOverAfter > 0 && failed >= s.cfg.HandOverAfter {
			log.Error(cmp.Or(err, errReturnedNil), "daemon ended by itself; the next in line has its turn", "ran", ran, "failed", failed, "pause", next)
			return next
		}
		log.Error(cmp.Or(err, errReturnedNil), "daemon ended by itself; starting it again", "ran", ran, "pause", next)
		rest(ctx, lease, next)
	}
	return 0
}

// start runs the function once and waits until it has returned. ended is why its
// context was done then; nil if it was not.
func (s *Daemon) start(ctx context.Context, lease engine.Lease) (ended, err error) {
	work, stop := lease.Bind(ctx)
	defer stop()
	defer s.work.begin(s.name, lease.Context())() //nolint:contextcheck // the lease's own, which ends later than ctx
	s.metrics.running.Inc()                       // and not Set: a process may run several of one name
	defer s.metrics.running.Dec()
	err = protect(s.cfg.Logger, func() error { return s.do(work, lease.Token()) })
	if work.Err() != nil {
		ended = context.Cause(work)
	}
	return ended, err
}

var errReturnedNil = errors.New("singleton: the function returned nil")

// handOverWithin bounds how long a Daemon that goes on waits for the answer to the
// release of its lease, which goes on behind.
const handOverWithin = 5 * time.Second

// rest waits, unless ctx or the lease, if there is one, ends before.
func rest(ctx context.Context, lease engine.Lease, d time.Duration) {
	if d <= 0 {
		return
	}
	var ended <-chan struct{}
	if lease != nil {
		ended = lease.Context().Done()
	}
	retry.Sleep(ctx, d, ended)
}
