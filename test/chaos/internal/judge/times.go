package judge

import (
	"cmp"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// waits: a waiter gets a lock that is free, in time. The time counts while no fault touches the waiter or a server, and
// from the last time that a process was killed or frozen.
func (r *run) waits() {
	leases := r.units()
	freed := map[string][]int64{} // by unit, when the server has freed each lease and those before it
	for unit, all := range leases {
		last := int64(0)
		for _, l := range all {
			last = max(last, r.freed(l))
			freed[unit] = append(freed[unit], last)
		}
	}
	for _, c := range r.calls {
		if c.Mode != "" || c.Kind != history.Mutex && c.Kind != history.Election {
			continue
		}
		all, free := leases[c.unit()], freed[c.unit()]
		answer := r.answered(c)
		i := before(all, c.ask+1)
		since := c.ask
		if i > 0 {
			since = max(since, free[i-1])
		}
		for ; i < len(all) && all[i].answer <= answer; i++ {
			r.waited(c, since, all[i].answer)
			since = max(since, free[i])
		}
		r.waited(c, since, answer)
	}
}

// freed is when the server frees a lease at the latest. A renewal may have arrived whose answer was lost.
func (r *run) freed(l *call) int64 {
	if l.released > 0 && l.releaseErr == "" {
		return l.released
	}
	return l.until + int64(r.TTL)
}

// answered is when a call returned, or its process ended, as far as is known.
func (r *run) answered(c *call) int64 { return cmp.Or(c.answer, r.exits[c.W], r.end) }

// waited records a violation if a free lock was not granted to a waiter between `from` and `to`. A process that is
// dead, frozen or cut off cannot withdraw its requests, so the next waiter waits for their TTL.
func (r *run) waited(c *call, from, to int64) {
	within, withTTL := 3*time.Second/2, r.TTL*11/10+3*time.Second/2
	if r.Peers {
		within = withTTL
	}
	if time.Duration(to-from) <= within+slack/2 {
		return
	}
	if r.LockDelay > 0 { // the first use of a server counts as a loss
		from = max(from, r.events[0].T+int64(r.LockDelay+grace))
	}
	for _, f := range r.faults {
		switch {
		case f.T > to || !f.isServer() && !r.users[c.unit()][f.Target]:
			continue
		case f.end <= to:
			from = max(from, f.end)
			if f.isServer() {
				from = max(from, f.end+int64(r.LockDelay))
			}
		case f.isServer() || f.Target == history.Worker(c.W):
			return
		}
		if f.isProcess() {
			from = max(from, f.T)
		}
		if isLong := f.end > f.T+int64(r.TTL); (f.isProcess() || isLong) && f.end+int64(3*r.TTL) > to {
			within = withTTL
		}
	}
	if took := time.Duration(to - from); took > within+slack/2+r.stalled(from, to) {
		r.add("a waiter hangs", from, to, "%s waits for %s, which is free for %v", c.W, c.Name, took)
	}
}

// lateEnds: work does not go on after its lease. A library need not tell until when a lease is valid, but no renewal
// reaches the server while its process is frozen or cut off.
func (r *run) lateEnds() {
	const tolerated = 100 * time.Millisecond
	for _, c := range r.leases {
		for _, f := range r.faults {
			isCut := r.Peers && !r.Quorum() && (f.Fault == "cut off" || f.Fault == "requests held")
			if f.Fault != "freeze" && !isCut || f.Target != history.Worker(c.W) ||
				f.T < c.answer || f.end < f.T+int64(r.TTL) ||
				r.hasFault(f.T, f.T, grace, (*fault).isServer) { // it may have been about to answer an earlier request
				continue
			}
			if late := time.Duration(c.believed()-f.T) - r.TTL; late > tolerated {
				r.serious("work after its lease", c.believed(), "%v, %v after its lease", c, late)
				r.Longest = max(r.Longest, late)
				break
			}
		}
	}
}

// bounds: calls return in the documented time, unless the process was frozen.
func (r *run) bounds() {
	for _, c := range r.calls {
		limit := min(r.TTL*2/3, 6*time.Second)
		if r.Quorum() {
			limit += min(r.TTL/3, 3*time.Second)
		}
		answer := r.answered(c)
		switch {
		case c.Mode == "try":
			r.bounded("try", c, c.ask, answer, limit)
		case c.deadline > 0:
			r.bounded("lock", c, c.deadline, answer, 0)
		}
		if c.released > 0 {
			r.bounded("release", c, c.over, c.released, r.TTL)
		}
	}
}

func (r *run) bounded(what string, c *call, from, to int64, limit time.Duration) {
	took := time.Duration(to - from)
	ofWorker := func(f *fault) bool { return f.Target == history.Worker(c.W) }
	if took > limit+slack+r.stalled(from, to) && !r.hasFault(from, to, grace, ofWorker) {
		r.add("a call is late", from, to, "%s of %s by %s took %v, at most %v", what, c.Name, c.W, took, limit)
	}
}

// order: waiters are served in the order of their arrival, while no fault touches anything.
func (r *run) order() {
	if r.Quorum() || r.Library != "" {
		return
	}
	const apart = int64(300 * time.Millisecond)
	for _, leases := range r.units() {
		if leases[0].Kind != history.Mutex {
			continue
		}
		for i, b := range leases {
			for _, a := range leases[i+1:] {
				if a.answer > b.answer+int64(9*r.TTL) {
					break
				}
				early := b.ask - a.ask - int64(r.stalled(a.ask, b.ask))
				if a.Mode+b.Mode == "" && early > apart && r.quiet(a.ask, a.answer) {
					r.add("a waiter is passed over", a.ask, b.answer, "%v, asked at %d; %v, asked at %d", a, a.ask, b, b.ask)
				}
			}
		}
	}
}

// quiet reports whether nothing had a fault, and the effects of earlier ones were over. LockDelay, also at the first
// use of a server, is longer than waiters keep their places.
func (r *run) quiet(from, to int64) bool {
	after := 2*r.TTL + r.LockDelay
	return from > r.events[0].T+int64(after) && !r.hasFault(from, to, after, func(*fault) bool { return true })
}
