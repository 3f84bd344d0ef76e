package lease

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Renewer sends renewals to the servers. No method except Renew may block.
type Renewer interface {
	// Stream returns the stream that carries the renewals of a lease at present. The
	// Keeper calls it when the lease begins, and again before each renewal.
	Stream(l *Lease) Stream

	// Renew renews leases in one round trip on the stream. t0 is the time just before the requests
	// are sent. Renew calls Extend or End for each lease that was answered, unless the Stream of
	// this lease has changed: the answer of a former server does not count. done reports which leases
	// need no other try. Renew returns when ctx ends, and ignores an answer that takes longer than within.
	Renew(ctx context.Context, stream Stream, t0, within time.Duration, leases []*Lease) (done []bool)

	// Late records how long after its due time a renewal was sent.
	Late(by time.Duration)
}

// renewals schedules the renewals of all leases. It groups the leases by stream, so that a server that does not answer
// delays only its own leases.
//
// A lease is in one of these states, which renewals.mu guards:
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
//	ended        removed from its group
//
// The answer of a batch is applied to its leases even if they are in another group by then.
type renewals struct {
	clock   *Clock
	renewer Renewer
	loop

	mu        sync.Mutex
	groups    map[Stream]*group // groups that have leases or unanswered batches
	regrouped bool              // whether step has moved a lease to another group
	movedAt   time.Duration     // time of the last renewMoved: earlier requests went to another server
	wakeAt    time.Duration     // time for which the timer is set
}

func (r *renewals) add(l *Lease) {
	if l.times.Renew == 0 {
		return
	}
	r.first.Do(func() { r.start(r.step, nil) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.join(l, r.renewer.Stream(l), r.dueAfter(l, l.acquired))
	if l.renews.at < r.wakeAt {
		r.wakeAt = l.renews.at
		r.wake.Send()
	}
}

// dueAfter returns when to renew a lease after the answer to a request of t0: at once if a server has moved since.
func (r *renewals) dueAfter(l *Lease, t0 time.Duration) time.Duration {
	if t0 < r.movedAt {
		return r.movedAt
	}
	return t0 + l.times.Renew
}

// renewMoved makes the leases due now that have moved to another server. A lease with an unanswered grant or
// renewal is due again after the answer.
func (r *renewals) renewMoved(moved func(*Lease) bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.movedAt = now
	for _, g := range r.groups {
		for _, l := range slices.Clone(g.due.leases) {
			if moved(l) {
				g.due.move(l, now)
			}
		}
	}
	r.wake.Send()
}

func (r *renewals) dueNow(l *Lease) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.renews.index > 0 {
		l.group.due.move(l, now)
	}
	r.wake.Send()
}

// join adds a lease to the group of a stream. The caller holds r.mu.
func (r *renewals) join(l *Lease, stream Stream, at time.Duration) {
	g := r.groups[stream]
	if g == nil {
		g = &group{stream: stream, due: schedule{renewals: true}, shortest: never}
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

// step sends the renewals that are due, and returns how long to sleep.
func (r *renewals) step() time.Duration {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	next := never
	for stream, g := range r.groups {
		next = min(next, r.sendDue(g, now))
		if g.empty() {
			delete(r.groups, stream)
		}
	}
	if r.regrouped { // the loop may have passed the new group before
		r.regrouped = false
		next = now
	}
	if r.wakeAt > now {
		// Never postpone an instant that the timer was set for: otherwise, a lock that is
		// acquired and released all the time would postpone it each time.
		next = min(next, r.wakeAt)
	}
	r.wakeAt = next
	if next == never {
		return time.Hour // no lease is left; add wakes the goroutine
	}
	return max(next-now, 0)
}

// sendDue sends the due renewals and returns when to call it again.
func (r *renewals) sendDue(g *group, now time.Duration) (next time.Duration) {
	for {
		first, at := g.due.first()
		switch {
		case first == nil:
			return never
		case at > now:
			return at
		}
		if earliest := g.sent + min(time.Duration(g.underway)*gap, g.shortest/10); earliest > now {
			return earliest
		}
		if r.keeps(g, first, now) {
			r.send(g, now)
		}
	}
}

// keeps reports whether a scheduled lease stays in the group. It removes a lease that has ended, and moves a lease with
// another stream to the group of that stream.
func (r *renewals) keeps(g *group, l *Lease, now time.Duration) bool {
	if l.ending.cause() != nil || l.until() <= now {
		g.due.remove(l) // expiry ends it
		return false
	}
	stream := r.renewer.Stream(l)
	if stream == g.stream {
		return true
	}
	g.due.remove(l)
	r.join(l, stream, l.renews.at)
	r.regrouped = true
	return false
}

func (r *renewals) send(g *group, now time.Duration) {
	b := &batch{sent: now}
	longest := time.Duration(0)
	for len(b.leases) < maxBatch {
		l := g.next(now)
		if l == nil {
			break
		}
		if !r.keeps(g, l, now) {
			continue
		}
		g.due.remove(l)
		r.renewer.Late(max(0, now-l.renews.at))
		l.pending = b
		b.leases = append(b.leases, l)
		longest = max(longest, l.until()-now, minTry)
	}
	if len(b.leases) == 0 {
		return // all of them have ended or moved
	}
	if len(b.leases) < maxBatch { // after a full batch, the next one follows without a gap
		g.sent = now
	}
	for _, l := range b.leases {
		g.add(l, now+l.times.resendAfter(l.until()-now)) // without an answer, it is renewed again then
	}
	g.underway++
	r.wg.Go(func() {
		done := r.renewer.Renew(r.ctx, g.stream, b.sent, min(longest, maxWait), b.leases)
		r.answered(g, b, done)
	})
}

// answered schedules the next renewal of the leases of a batch.
func (r *renewals) answered(g *group, b *batch, done []bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	g.underway--
	for i, l := range b.leases {
		latest := l.pending == b
		if latest {
			l.pending = nil
		}
		switch {
		case l.renews.index == 0: // the lease has ended
		case done[i] && (latest || r.dueAfter(l, b.sent) > l.renews.at): // an older batch only postpones
			l.group.due.move(l, r.dueAfter(l, b.sent))
		case !done[i] && latest:
			l.group.due.move(l, min(max(l.renews.at, now), now+l.times.Retry))
		}
	}
	r.wake.Send()
}

// A Stream carries renewals to one server. Leases with equal Streams share batches, so its dynamic
// type must be comparable. A Stream that does not answer does not delay the leases of another one.
type Stream any

// A group has the leases of one stream. One batch renews all due leases. Several batches may be under way,
// for example on a slow network. If an answer is late, the lease is renewed again in another batch. So
// neither a dead connection nor a batch with leases of longer TTLs ends a lease.
//
// The more batches are under way, the longer the next one collects leases, up to a tenth of the shortest
// interval. So about 80 batches are under way at most when a server stops answering, and more only with TTLs
// below 5 s. All fields are guarded by renewals.mu.
type group struct {
	stream   Stream
	due      schedule      // leases by the time of their next renewal
	underway int           // number of batches without an answer
	sent     time.Duration // time of the newest batch that was not full
	shortest time.Duration // shortest Times.Renew of a lease
}

const (
	// maxBatch is the maximum number of leases in one batch.
	maxBatch = 1000

	// gap, times the number of batches under way, is the time between two batches.
	gap = 2 * time.Millisecond

	// maxWait limits how long the Renewer waits for an answer.
	maxWait = 6 * time.Second
)

func (g *group) empty() bool { return g.due.Len()+g.underway == 0 }

// add schedules a lease that is in no schedule.
func (g *group) add(l *Lease, at time.Duration) {
	l.group, g.shortest = g, min(g.shortest, l.times.Renew)
	g.due.add(l, at)
}

// next returns a lease for the next batch, or nil. The lease is due now, or within a tenth of its interval.
func (g *group) next(now time.Duration) *Lease {
	l, at := g.due.first()
	if l != nil && at > now && (l.pending != nil || at-now > l.times.Renew/10) {
		return nil
	}
	return l
}
