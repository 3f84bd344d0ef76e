package lease

import "time"

// A group renews the leases of one stream. One batch renews all due leases. How many batches are under way
// is no sign that something hangs: behind a slow network there are several. If an answer is late, the
// lease is renewed again, in time. So neither a dead connection nor a lease with a longer TTL ends
// another lease. But the more batches are under way, the longer the next one collects leases, up to a
// tenth of the shortest interval: when a server stops answering, about 80 are under way at most, and more
// only with TTLs below 5 s. All fields are guarded by renewals.mu.
type group struct {
	r        *renewals
	stream   Stream
	due      schedule      // leases by due time
	underway int           // batches
	sent     time.Duration // when the last batch was sent that was not full
	shortest time.Duration // interval of all its leases
}

const (
	// maxBatch is the maximum number of leases in one batch.
	maxBatch = 1000

	// gap, for each batch that is under way, is the least time between two batches.
	gap = 2 * time.Millisecond

	// maxWait limits how long an answer that would still count is awaited.
	maxWait = 6 * time.Second
)

// A batch renews leases in one round trip.
type batch struct {
	leases []*Lease
	sent   time.Duration // t0 of the leases
}

func newGroup(r *renewals, stream Stream) *group {
	g := &group{r: r, stream: stream, shortest: never}
	g.due.place = func(l *Lease) *place { return &l.renews }
	return g
}

func (g *group) empty() bool { return g.due.Len()+g.underway == 0 }

// add schedules a lease that is in no schedule.
func (g *group) add(l *Lease, at time.Duration) {
	l.group, l.dueAt, g.shortest = g, at, min(g.shortest, l.times.Renew)
	g.due.add(l, at)
}

// move changes the due time of a scheduled lease.
func (g *group) move(l *Lease, at time.Duration) {
	g.due.remove(l)
	g.add(l, at)
}

// sendDue sends the due renewals and returns when to call it again.
func (g *group) sendDue(now time.Duration) (next time.Duration) {
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
		if g.keeps(first, now) {
			g.send(now)
		}
	}
}

// keeps reports whether a scheduled lease is to be renewed on this stream. Otherwise, the
// lease leaves the group.
func (g *group) keeps(l *Lease, now time.Duration) bool {
	if l.ending.cause() != nil || l.until() <= now {
		g.due.remove(l) // expiry ends it
		return false
	}
	stream := g.r.renewer.Stream(l)
	if stream == g.stream {
		return true
	}
	g.due.remove(l)
	g.r.join(l, stream, l.dueAt)
	g.r.moved = true
	return false
}

// next returns a lease for the next batch, nil if there is no other: one that is due, or
// will be due within a tenth of its interval.
func (g *group) next(now time.Duration) *Lease {
	l, at := g.due.first()
	if l != nil && at > now && (l.pending != nil || at-now > l.times.Renew/10) {
		return nil
	}
	return l
}

// send sends one batch.
func (g *group) send(now time.Duration) {
	one := &batch{sent: now}
	longest := time.Duration(0)
	for len(one.leases) < maxBatch {
		l := g.next(now)
		if l == nil {
			break
		}
		if !g.keeps(l, now) {
			continue
		}
		g.due.remove(l)
		g.r.renewer.Late(max(0, now-l.dueAt))
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
	g.r.wg.Go(func() {
		done := g.r.renewer.Renew(g.r.ctx, g.stream, one.sent, min(longest, maxWait), one.leases)
		g.answered(one, done)
	})
}

// answered schedules the next renewal of the leases of a batch.
func (g *group) answered(one *batch, done []bool) {
	now := g.r.clock.Ticks()
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	g.underway--
	for i, l := range one.leases {
		latest := l.pending == one
		if latest {
			l.pending = nil
		}
		switch {
		case l.renews.index == 0: // it has ended
		case done[i] && (latest || g.r.next(l, one.sent) > l.dueAt):
			l.group.move(l, g.r.next(l, one.sent))
		case !done[i] && latest:
			l.group.move(l, min(max(l.dueAt, now), now+l.times.Retry))
		}
	}
	g.r.wake()
}
