package partition

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
)

// Run leads this replica's share of the partitions until ctx ends. Then it gives them back, each as soon as its
// work has returned, and returns nil. If the lease is lost, Run begins again after a pause. An outage of the server
// does not end Run, however long it is.
//
// The error is ErrRunning, lockcore.ErrClosed, or a *noonlock.ConfigError if live replicas share another number of
// partitions. Run does not return before all work has returned.
func (r *Runner) Run(ctx context.Context) error {
	leave, ok := r.gate.Enter(ctx, r.set.lock.Client().Flush)
	if !ok {
		return ErrRunning
	}
	defer leave() // after everything else

	deadline, done := stopping.New(ctx, r.cfg.ShutdownTimeout, r.cfg.ShutdownTimeout/5)
	defer done()
	run, crash := holding.NewCrash(ctx)
	defer crash.Cancel(nil)
	loop := holding.Loop[*session]{
		Holder: &sharing{r, deadline, crash, retry.Growing(r.period, r.cfg.LeaseDuration, 1.5, 0.2)},
		TTL:    r.cfg.LeaseDuration, Retry: r.period,
		Ready: &r.ready, Deadline: deadline, Log: r.log, Reports: r.set.lock.Client().Campaigns(),
	}
	err := loop.Run(run)
	crash.Cancel(lockcore.ErrClosed)
	for _, w := range r.works.running() {
		<-w.returned
	}
	crash.Continue()
	return r.set.opError("run", cmp.Or(crash.Err(), err))
}

// A sharing is one Run of a Runner. It implements holding.Holder.
type sharing struct {
	*Runner
	deadline *stopping.Deadline
	crash    *holding.Crash
	pauses   retry.Backoff // after lost sessions
}

func (x *sharing) Prepare(ctx context.Context) error {
	return x.set.opError("join", x.set.lock.CheckRights(ctx, lock.NeedsOf(x.set.needs)))
}

// Campaign joins the set.
func (x *sharing) Campaign(ctx context.Context) (*session, error) {
	s := &session{Kind: x.set.lock.Client().Mutex(), set: x.set, n: x.n, owned: map[int]*work{}, wake: retry.NewSignal()}
	if err := s.join(ctx, x.crash); err != nil {
		return nil, x.set.opError("join", err)
	}
	return s, nil
}

// idlePause is the shortest time between two syncs after idleSyncs without a change, since anyone may send messages.
const (
	idleSyncs = 3
	idlePause = 10 * time.Millisecond
)

// Work syncs until the session has ended, or has given back all partitions after the end of run.
func (x *sharing) Work(run context.Context, s *session, _ time.Duration) {
	me := " " + strconv.FormatUint(s.lease.Token(), 10) + " " // as in a message; an empty one follows an outage
	x.log.Info("sharing partitions", "session", s.lease.Token())
	defer x.set.lock.Watch(x.set.channel, func(sessions string) {
		if sessions == "" || strings.Contains(sessions, me) {
			s.wake.Send()
		}
	})()
	unhook := context.AfterFunc(run, s.wake.Send)
	defer unhook()
	ended := s.lease.Context().Done()
	failures := retry.Pauses(50*time.Millisecond, x.period)
	for unchanged := 0; ; unchanged++ {
		leaving := run.Err() != nil
		if s.lease.Err() != nil {
			grace := time.NewTimer(x.period) // for work to return
			defer grace.Stop()
			for !s.idle() && run.Err() == nil {
				select {
				case <-s.wake:
				case <-grace.C:
					return
				}
			}
			return
		}
		if leaving && s.idle() {
			return // the release gives back all partitions
		}
		changed, pause, err := x.rebalance(run, s, leaving)
		switch {
		case err == nil:
			failures.Reset()
		case s.lease.Err() != nil:
			continue
		default:
			lock.Log(x.log.V(1), err, "cannot share partitions; retrying")
			pause = failures.NextBackOff()
		}
		if changed {
			unchanged = 0
		} else if unchanged >= idleSyncs {
			retry.Sleep(run, idlePause, ended)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ended:
		}
		timer.Stop()
	}
}

// rebalance syncs the session, and starts and stops work according to this replica's share. It reports whether
// something has changed, and returns the time until the lease of another replica may end.
func (x *sharing) rebalance(run context.Context, s *session, leaving bool) (changed bool, next time.Duration, err error) {
	bound, unbind := s.lease.Bind(context.WithoutCancel(run))
	defer unbind()
	ctx, cancel := x.deadline.Context(bound, x.deadline.Last())
	defer cancel()
	returned := s.returned()
	sh, err := s.sync(ctx, leaving, returned)
	if err != nil {
		return false, 0, err
	}
	for _, w := range returned {
		delete(s.owned, w.index)
		x.metrics.released.Inc()
	}
	lost := s.dropLost(sh)
	if lost > 0 {
		x.recordLoss(lockcore.ErrLeaseLost, lost)
	}
	// The version is at least the token of the newest grant. This replica gave back a partition with an older token,
	// and the server lost that change in a failover. Others may have led it since, so it needs a new token.
	before := s.version.Swap(sh.version)
	started := 0
	for index, token := range sh.tokens {
		if s.owned[index] == nil {
			s.owned[index] = x.works.start(run, x.crash, s.lease, index, token, token <= before, s.wake)
			started++
		}
	}
	stopping := s.stopSurplus(sh.surplus)
	if changed = started+stopping+len(returned)+lost > 0; changed {
		x.log.Info("share of partitions changed", "leads", len(s.owned), "gained", started, "released", len(returned), "stopping", stopping)
	}
	return changed, sh.next, nil
}

// Release ends the session. If the lease is lost while work runs, it does not release: the work has until the
// TTL ends to stop.
func (x *sharing) Release(ctx context.Context, s *session) error {
	if s.lease.Err() != nil && !s.idle() {
		return s.lease.Err()
	}
	return s.lease.Unlock(ctx)
}

func (x *sharing) Released(s *session, lost, err error) {
	switch {
	case lost != nil:
		x.recordLoss(lost, len(s.owned))
	case err != nil:
		lock.Log(x.log, err, "partitions not released; others lead them when the lease ends", "led", len(s.owned))
	default:
		x.log.Info("no longer sharing partitions")
	}
}

func (x *sharing) recordLoss(cause error, n int) {
	x.metrics.lost.Add(float64(n))
	x.log.Error(cause, "partitions lost", "led", n)
}

// Next returns the pause after a lost session. While work of this replica hangs, others lead its partitions.
func (x *sharing) Next(_ error, held time.Duration) (pause time.Duration, again bool) {
	if len(x.works.running()) > 0 {
		return x.cfg.LeaseDuration, true
	}
	if held > x.cfg.LeaseDuration {
		x.pauses.Reset()
	}
	return x.pauses.NextBackOff(), true
}
