package lease

import "time"

// A Stream carries renewals to one server. Leases with equal Streams share batches; a
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
