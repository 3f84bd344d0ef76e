package lease

import "time"

// A Stream carries renewals to one server. Leases with equal Streams share batches; a
// Stream that does not answer does not delay the leases of another Stream. The dynamic
// type is comparable.
type Stream any

// A group renews the leases of one stream. One batch renews all due leases. How many batches are under way
// is no sign that something hangs: behind a slow network there are several. If an answer is late, the
// lease is renewed again, in time. So neither a dead connection nor a lease with a longer TTL ends
// another lease. But the more batches are under way, the longer the next one collects leases, up to a
// tenth of the shortest interval: when a server stops answering, about 80 are under way at most, and more
// only with TTLs below 5 s. All fields are guarded by renewals.mu.
type group struct {
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

func newGroup(stream Stream) *group {
	return &group{stream: stream, due: schedule{renewals: true}, shortest: never}
}

func (g *group) empty() bool { return g.due.Len()+g.underway == 0 }

// add schedules a lease that is in no schedule.
func (g *group) add(l *Lease, at time.Duration) {
	l.group, g.shortest = g, min(g.shortest, l.times.Renew)
	g.due.add(l, at)
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
