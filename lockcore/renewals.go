package lockcore

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// Renewals go out as one stream: everything that is due in one pipeline, and the next
// pipeline when that is answered, whatever the timings of the leases. Where an answer
// is late the leases are renewed again on another connection, each in its time, so
// that neither a connection that is dead nor another lease's patience ends a lease.

const (
	// renewalLinks bounds the renewals that are under way at once. More than one is,
	// only if answers are late.
	renewalLinks = 3

	// maxRenewals is the size of one renewal pipeline.
	maxRenewals = 1000

	// maxFlight bounds how long an answer is waited for that would still count.
	maxFlight = 6 * time.Second

	// leastTry is the least time that a renewal has to be answered in.
	leastTry = 10 * time.Millisecond
)

// A renewal is one pipeline under way.
type renewal struct {
	link   *wire.Link
	sent   time.Duration // t0 of its leases
	stamp  time.Duration // the same by the links' clock
	cancel context.CancelFunc
}

// try is how long a renewal sent now may be unanswered before another is sent: half of
// what is left of the lease, so that there is time for more tries, however many fail.
func (l *Lease) try(now time.Duration) time.Duration {
	left := time.Duration(l.validUntil.Load()) - now
	return max(leastTry, min(l.a.terms.timeout(), left/2))
}

// launch sends the renewals that are due, and returns when the next are; k.mu is held.
func (k *keeper) launch(now time.Duration) (next time.Duration) {
	for len(k.due.leases) > 0 {
		first := k.due.leases[0]
		if first.renewAt > now {
			return first.renewAt
		}
		if first.capped(now) {
			heap.Pop(&k.due) // it ends by itself
			continue
		}
		if n := len(k.underway); n > 0 {
			// The answer to the one before is awaited for a moment: it is one stream
			// as long as the server answers.
			if at := k.underway[n-1].sent + first.try(now)/4; at > now {
				return at
			}
		}
		if first.asked != nil {
			k.links[0].Doubt(first.asked.stamp)
		}
		if len(k.free) == 0 {
			// All hang. The oldest has had the most time.
			if oldest := k.underway[0]; oldest.cancel != nil {
				oldest.cancel()
				oldest.cancel = nil
			}
			return never // it lands now, and has the keeper look again
		}
		k.send(now)
	}
	return never
}

// send takes what is due, and what will be in a tenth of its interval: one round trip
// for many. k.mu is held.
func (k *keeper) send(now time.Duration) {
	last := len(k.free) - 1
	r := &renewal{link: k.free[last], sent: now, stamp: k.links[0].Stamp()}
	k.free = k.free[:last]
	var batch []*Lease
	longest := time.Duration(0)
	for len(k.due.leases) > 0 && len(batch) < maxRenewals {
		l := k.due.leases[0]
		if wait := l.renewAt - now; wait > 0 && (l.asked != nil || wait > l.a.terms.renewEvery/10) {
			break
		}
		heap.Pop(&k.due)
		if l.capped(now) {
			continue
		}
		k.c.metrics.lateness.Observe(max(0, now-l.renewAt).Seconds())
		l.asked = r
		batch = append(batch, l)
		longest = max(longest, time.Duration(l.validUntil.Load())-now, leastTry)
	}
	for _, l := range batch {
		l.renewAt = now + l.try(now) // unless it is answered before
		heap.Push(&k.due, l)
	}
	ctx, cancel := context.WithTimeoutCause(k.c.ctx, min(longest, maxFlight), wire.NoAnswer(min(longest, maxFlight)))
	r.cancel = cancel
	k.underway = append(k.underway, r)
	k.wg.Go(func() {
		defer cancel()
		k.renew(ctx, r, batch)
	})
}

// renew sends one pipeline of renewals and counts its answers.
func (k *keeper) renew(ctx context.Context, r *renewal, batch []*Lease) {
	requests := make([]wire.Request, len(batch))
	for i, l := range batch {
		requests[i] = l.a.renewal()
	}
	answers := wire.Transfer(ctx, r.link, requests)
	good := make([]bool, len(batch))
	for i, l := range batch {
		good[i] = l.renewed(r.sent, answers[i])
	}
	k.land(r, batch, good)
}

// land says when the leases of a renewal are renewed next.
func (k *keeper) land(r *renewal, batch []*Lease, good []bool) {
	now := k.c.time.ticks()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.underway = slices.DeleteFunc(k.underway, func(other *renewal) bool { return other == r })
	if r.link.Failed() {
		k.free = slices.Insert(k.free, 0, r.link)
	} else {
		k.free = append(k.free, r.link)
	}
	for i, l := range batch {
		latest := l.asked == r
		if latest {
			l.asked = nil
		}
		switch {
		case !l.kept || l.renewIdx < 0:
			continue
		case good[i] && (latest || r.sent+l.a.terms.renewEvery > l.renewAt):
			l.renewAt = r.sent + l.a.terms.renewEvery
		case !good[i] && latest:
			l.renewAt = min(max(l.renewAt, now), now+l.a.terms.retryEvery)
		default:
			continue
		}
		heap.Fix(&k.due, l.renewIdx)
	}
	k.wake()
}
