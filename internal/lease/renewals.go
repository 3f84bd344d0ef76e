package lease

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The renewals of all leases are one stream: one pipeline renews everything that is due,
// and the next one is sent when that is answered, whatever the times of the leases. Where
// an answer is late, the leases are renewed again on another connection, each in its
// time. So neither a dead connection nor a lease with more time ends another lease.
type renewals struct {
	clock   *Clock
	renewer Renewer
	kick    chan struct{}
	ctx     context.Context // of the goroutines
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	due      schedule
	underway []*renewal
	free     []int // connections; the one used last is at the end
	wakeAt   time.Duration
}

const (
	// mostRenewals is the size of one pipeline.
	mostRenewals = 1000

	// mostPatience bounds how long an answer is waited for that would still count.
	mostPatience = 6 * time.Second
)

// A renewal is one pipeline under way.
type renewal struct {
	connection int
	sent       time.Duration // t0 of its leases
	mark       time.Duration // see Renewer.Mark
	abort      context.CancelFunc
}

func newRenewals(clock *Clock, renewer Renewer) *renewals {
	r := &renewals{clock: clock, renewer: renewer, kick: make(chan struct{}, 1), wakeAt: never}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.due.place = func(l *Lease) *place { return &l.renews }
	for connection := range Connections {
		r.free = append(r.free, connection)
	}
	r.wg.Go(r.run)
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
	r.mu.Lock()
	defer r.mu.Unlock()
	l.kept = true
	r.due.add(l, l.acquired+l.times.Renew)
	if l.renews.at < r.wakeAt {
		r.wakeAt = l.renews.at
		r.wake()
	}
}

func (r *renewals) remove(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.kept = false
	r.due.remove(l)
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
	now := r.clock.Now() // perhaps the user's, so not under the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.sendDue(now)
	if r.wakeAt > now {
		// Never put off what the timer was set for: a lock that is taken and given
		// back all the time would set it anew each time.
		next = min(next, r.wakeAt)
	}
	r.wakeAt = next
	if next == never {
		return time.Hour
	}
	return max(next-now, 0)
}

// sendDue sends the renewals that are due, and returns when the next are; r.mu is held.
func (r *renewals) sendDue(now time.Duration) (next time.Duration) {
	for {
		first, at := r.due.first()
		if first == nil {
			return never
		}
		if at > now {
			return at
		}
		if first.capped(now) {
			r.due.remove(first) // it ends by itself
			continue
		}
		if n := len(r.underway); n > 0 {
			// The answer to the one before is awaited for a moment: it is one stream
			// as long as the server answers.
			if at := r.underway[n-1].sent + first.times.try(first.until()-now)/4; at > now {
				return at
			}
		}
		if first.asked != nil {
			r.renewer.Doubt(first.asked.mark)
		}
		if len(r.free) == 0 {
			// All hang. The oldest has had the most time.
			if oldest := r.underway[0]; oldest.abort != nil {
				oldest.abort()
				oldest.abort = nil
			}
			return never // it is answered now, which wakes the stream
		}
		r.send(now)
	}
}

// send sends one pipeline of what is due, and what will be in a tenth of its interval;
// r.mu is held.
func (r *renewals) send(now time.Duration) {
	last := len(r.free) - 1
	one := &renewal{connection: r.free[last], sent: now, mark: r.renewer.Mark()}
	r.free = r.free[:last]
	var batch []*Lease
	longest := time.Duration(0)
	for len(batch) < mostRenewals {
		l, at := r.due.first()
		if l == nil {
			break
		}
		if wait := at - now; wait > 0 && (l.asked != nil || wait > l.times.Renew/10) {
			break
		}
		r.due.remove(l)
		if l.capped(now) {
			continue
		}
		r.renewer.Late(max(0, now-at))
		l.asked = one
		batch = append(batch, l)
		longest = max(longest, l.until()-now, leastTry)
	}
	for _, l := range batch {
		r.due.add(l, now+l.times.try(l.until()-now)) // unless it is answered before
	}
	ctx, abort := context.WithCancel(r.ctx)
	one.abort = abort
	r.underway = append(r.underway, one)
	r.wg.Go(func() {
		defer abort()
		done, works := r.renewer.Renew(ctx, one.connection, one.sent, min(longest, mostPatience), batch)
		r.answered(one, batch, done, works)
	})
}

// answered says when the leases of a renewal are renewed next.
func (r *renewals) answered(one *renewal, batch []*Lease, done []bool, works bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underway = slices.DeleteFunc(r.underway, func(other *renewal) bool { return other == one })
	if works {
		r.free = append(r.free, one.connection)
	} else {
		r.free = slices.Insert(r.free, 0, one.connection)
	}
	for i, l := range batch {
		latest := l.asked == one
		if latest {
			l.asked = nil
		}
		switch {
		case !l.kept || l.renews.index == 0:
			continue
		case done[i] && (latest || one.sent+l.times.Renew > l.renews.at):
			r.due.move(l, one.sent+l.times.Renew)
		case !done[i] && latest:
			r.due.move(l, min(max(l.renews.at, now), now+l.times.Retry))
		}
	}
	r.wake()
}
