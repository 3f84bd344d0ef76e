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

	// Renew renews leases in one round trip on the stream. The requests are sent at t0. It
	// calls Extend or End for each lease that was answered, unless Stream has changed for
	// this lease: the answer of a former server does not count. done reports which leases
	// need no other try. Renew returns when ctx ends, and ignores an answer that arrives
	// later than within after t0.
	Renew(ctx context.Context, stream Stream, t0, within time.Duration, leases []*Lease) (done []bool)

	// Late records how long after its due time a renewal was sent.
	Late(by time.Duration)
}

// renewals schedules the renewals of all leases. It groups the leases by stream, so that a server that does not answer
// delays only its own leases.
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
//	ended        it leaves its group. expiry ends it
//
// The answer of a batch is applied to its leases even if they are in another group by then.
type renewals struct {
	clock   *Clock
	renewer Renewer
	loop

	mu     sync.Mutex
	groups map[Stream]*group // with leases or batches
	moved  bool              // step has moved a lease to another group
	since  time.Duration     // earlier requests went to another primary
	wakeAt time.Duration
}

func (r *renewals) add(l *Lease) {
	if l.times.Renew == 0 {
		return
	}
	r.first.Do(func() { r.start(r.step, nil) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.join(l, r.renewer.Stream(l), r.next(l, l.acquired))
	if l.renews.at < r.wakeAt {
		r.wakeAt = l.renews.at
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

// renewMoved makes all leases due now that have moved to another server, and leases with an unanswered
// grant or renewal when it is answered.
func (r *renewals) renewMoved(moved func(*Lease) bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = now
	for _, g := range r.groups {
		for _, l := range slices.Clone(g.due.leases) {
			if moved(l) {
				g.due.move(l, now)
			}
		}
	}
	r.wake()
}

func (r *renewals) dueNow(l *Lease) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.renews.index > 0 {
		l.group.due.move(l, now)
	}
	r.wake()
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
		if free := g.sent + min(time.Duration(g.underway)*gap, g.shortest/10); free > now {
			return free
		}
		if r.keeps(g, first, now) {
			r.send(g, now)
		}
	}
}

// keeps reports whether a scheduled lease stays in the group. Otherwise, it removes the lease.
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
	r.moved = true
	return false
}

func (r *renewals) send(g *group, now time.Duration) {
	one := &batch{sent: now}
	longest := time.Duration(0)
	for len(one.leases) < maxBatch {
		l := g.next(now)
		if l == nil {
			break
		}
		if !r.keeps(g, l, now) {
			continue
		}
		g.due.remove(l)
		r.renewer.Late(max(0, now-l.renews.at))
		l.pending = one
		one.leases = append(one.leases, l)
		longest = max(longest, l.until()-now, leastTry)
	}
	if len(one.leases) == 0 {
		return // all of them have ended or moved
	}
	if len(one.leases) < maxBatch { // otherwise, others are due
		g.sent = now
	}
	for _, l := range one.leases {
		g.add(l, now+l.times.try(l.until()-now)) // the retry; an answer moves it
	}
	g.underway++
	r.wg.Go(func() {
		done := r.renewer.Renew(r.ctx, g.stream, one.sent, min(longest, maxWait), one.leases)
		r.answered(g, one, done)
	})
}

// answered schedules the next renewal of the leases of a batch.
func (r *renewals) answered(g *group, one *batch, done []bool) {
	now := r.clock.Ticks()
	r.mu.Lock()
	defer r.mu.Unlock()
	g.underway--
	for i, l := range one.leases {
		latest := l.pending == one
		if latest {
			l.pending = nil
		}
		switch {
		case l.renews.index == 0: // it has ended
		case done[i] && (latest || r.next(l, one.sent) > l.renews.at):
			l.group.due.move(l, r.next(l, one.sent))
		case !done[i] && latest:
			l.group.due.move(l, min(max(l.renews.at, now), now+l.times.Retry))
		}
	}
	r.wake()
}

// A Stream carries renewals to one server. Leases with equal Streams share batches. A
// Stream that does not answer does not delay the leases of another Stream. The dynamic
// type is comparable.
type Stream any

// A group has the leases of one stream. One batch renews all due leases. Several batches may be under way,
// for example behind a slow network. If an answer is late, the
// lease is renewed again, in time. So neither a dead connection nor a lease with a longer TTL ends
// another lease. But the more batches are under way, the longer the next one collects leases, up to a
// tenth of the shortest interval: when a server stops answering, about 80 are under way at most, and more
// only with TTLs below 5 s. All fields are guarded by renewals.mu.
type group struct {
	stream   Stream
	due      schedule      // leases by due time
	underway int           // batches without an answer
	sent     time.Duration // time of the newest batch that was not full
	shortest time.Duration // shortest interval of a lease
}

const (
	// maxBatch is the maximum number of leases in one batch.
	maxBatch = 1000

	// gap is the time between two batches for each batch under way.
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

// next returns a lease for the next batch, which is due now or within a tenth of its interval, or nil.
func (g *group) next(now time.Duration) *Lease {
	l, at := g.due.first()
	if l != nil && at > now && (l.pending != nil || at-now > l.times.Renew/10) {
		return nil
	}
	return l
}
