package lease

import (
	"context"
	"slices"
	"sync"
	"time"
)

// renewals schedules the renewals of all leases, with one goroutine and one timer. It
// groups the leases by stream, so that a server that does not answer delays only its own
// leases.
//
// A lease has these states. All of them are guarded by renewals.mu:
//
//	due later    in group.due. Begin adds the lease to the group of its stream; the
//	             first renewal is due after Times.Renew, or after RenewNow
//	due          step sends it. If its stream has changed, step first moves it to the group
//	             of the new stream
//	in a batch   pending is the batch. The lease is in group.due again, for the retry
//	             after half of its remaining validity
//	answered     due after Times.Renew from the batch's t0
//	failed       due after Times.Retry, unless a newer batch contains the lease
//	late         due although pending is set. step sends the lease in another batch
//	over         it leaves its group. expiry ends it
//
// The answer of a batch is applied to its leases even if they are in another group by then.
type renewals struct {
	clock   *Clock
	renewer Renewer
	kick    chan struct{}
	ctx     context.Context // of the goroutines
	stop    context.CancelFunc
	first   sync.Once // the first lease starts the goroutine
	wg      sync.WaitGroup

	mu     sync.Mutex
	groups map[Stream]*group // those with leases or batches
	moved  bool              // step has moved a lease to another group
	since  time.Duration     // requests that were sent before went to another primary
	wakeAt time.Duration
}

func newRenewals(clock *Clock, renewer Renewer) *renewals {
	r := &renewals{clock: clock, renewer: renewer, kick: make(chan struct{}, 1), groups: map[Stream]*group{}, wakeAt: never}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *renewals) close() {
	r.stop()
	r.wg.Wait()
}

func (r *renewals) add(l *Lease) {
	if l.times.Renew == 0 {
		return
	}
	r.first.Do(func() { r.wg.Go(r.run) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.join(l, r.renewer.Stream(l), r.next(l, l.acquired))
	if l.dueAt < r.wakeAt {
		r.wakeAt = l.dueAt
		r.wake()
	}
}

// next returns when to renew a lease after the answer to a request that was sent at t0.
func (r *renewals) next(l *Lease, t0 time.Duration) time.Duration {
	if t0 < r.since {
		return r.since
	}
	return t0 + l.times.Renew
}

// renewNow makes all leases due now that have moved to another server. So are leases whose
// grants or renewals it has not answered.
func (r *renewals) renewNow(moved func(*Lease) bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
	for _, g := range r.groups {
		for _, l := range slices.Clone(g.due.leases) {
			if moved(l) {
				g.move(l, now)
			}
		}
	}
	r.wake()
}

// dueNow makes a lease due now.
func (r *renewals) dueNow(l *Lease) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.renews.index > 0 {
		l.group.move(l, now)
	}
	r.wake()
}

// join adds a lease to the group of a stream. The caller holds r.mu.
func (r *renewals) join(l *Lease, stream Stream, at time.Duration) {
	g := r.groups[stream]
	if g == nil {
		g = newGroup(r, stream)
		r.groups[stream] = g
	}
	g.add(l, at)
}

func (r *renewals) remove(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.group != nil {
		l.group.due.remove(l)
	}
}

func (r *renewals) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

func (r *renewals) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(r.step())
		select {
		case <-timer.C:
		case <-r.kick:
		case <-r.ctx.Done():
			return
		}
	}
}

// step sends the renewals that are due, and returns how long to sleep.
func (r *renewals) step() time.Duration {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	next := never
	for stream, g := range r.groups {
		next = min(next, g.sendDue(now))
		if g.empty() {
			delete(r.groups, stream)
		}
	}
	if r.moved { // maybe to a group that the loop had passed
		r.moved = false
		next = now
	}
	if r.wakeAt > now {
		// Never postpone an instant that the timer was set for: a lock that is acquired
		// and released all the time would postpone it each time.
		next = min(next, r.wakeAt)
	}
	r.wakeAt = next
	if next == never {
		return time.Hour
	}
	return max(next-now, 0)
}
