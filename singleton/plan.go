package singleton

import (
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// The reasons for skipped ticks, as recorded in the ledger.
const (
	skipMissed   = "missed"   // no replica ran it in time, and CatchUp runs another
	skipOverlap  = "overlap"  // it was due during an earlier run
	skipDeadline = "deadline" // StartingDeadline was over
	skipPaused   = "paused"   // it was due while the job was paused
)

// A plan is the next step for the ticks of a job.
type plan struct {
	run   time.Time    // claim this tick now; zero: none
	until time.Time    // but not after this; zero: no limit
	skip  *ledger.Skip // earlier ticks that will not run, for one reason; recorded first
	next  time.Time    // when the next tick is due; zero: none, or not known yet
}

const (
	// mostTicks limits the ticks of one plan; the next plan continues.
	mostTicks = 100_000

	// kept is the number of due ticks that a plan keeps: those that may run, and the one
	// before them.
	kept = catchUpMost + 1
)

// dueTicks are the ticks that are due. Only the newest are kept individually. The oldest
// ticks, as long as their reason for being skipped is the same, are kept as one Skip.
type dueTicks struct {
	count  int
	newest []time.Time
	first  ledger.Skip // the first ticks, all with the same reason
	mixed  bool        // later ticks have another reason
}

// add adds a tick, with the reason that is recorded if it does not run.
func (d *dueTicks) add(tick time.Time, reason string) {
	if d.count == 0 {
		d.first = ledger.Skip{First: tick, Reason: reason}
	}
	d.mixed = d.mixed || reason != d.first.Reason
	if !d.mixed {
		d.first.Last = tick
		d.first.Count++
	}
	d.count++
	if len(d.newest) == 2*kept {
		d.newest = d.newest[:copy(d.newest, d.newest[kept:])]
	}
	d.newest = append(d.newest, tick)
}

// skipped returns one Skip for all but the newest n ticks, or nil if there are no others.
// If they have several reasons, it covers only the first, and all is false.
func (d *dueTicks) skipped(n int) (skip *ledger.Skip, all bool) {
	s := d.first
	switch others := d.count - n; {
	case others == 0:
		return nil, true
	case s.Count < others:
		return &s, false
	default:
		s.Last, s.Count = d.newest[len(d.newest)-n-1], others
		return &s, true
	}
}

// plan decides which due tick runs and which are skipped. If ticks are skipped for several
// reasons, it returns the first one alone; the next plan continues after that is recorded.
// The result depends only on the arguments, so that replicas with the same state decide the
// same.
func (j *job) plan(view ledger.State, now time.Time) plan {
	var due dueTicks
	var p plan
	for tick := j.schedule.Next(view.Last).UTC(); !tick.IsZero(); {
		if tick.After(now) {
			p.next = tick
			break
		}
		due.add(tick, j.reason(tick, now, &view))
		if due.count == mostTicks || due.mixed && due.count-due.first.Count == kept {
			// More ticks than CatchUp allows: skip those first, then plan again.
			p.skip, _ = due.skipped(kept)
			return p
		}
		tick = j.schedule.Next(tick).UTC()
	}
	limit := j.cfg.StartingDeadline
	n := min(j.most(), len(due.newest))
	for n > 0 && limit > 0 && now.Sub(due.newest[len(due.newest)-n]) > limit {
		n--
	}
	var all bool
	p.skip, all = due.skipped(n)
	if n > 0 && all {
		p.run = due.newest[len(due.newest)-n]
		if limit > 0 {
			p.until = p.run.Add(limit)
		}
	}
	return p
}

// most returns how many of the newest due ticks may run.
func (j *job) most() int {
	if j.cfg.CatchUp == CatchUpAll {
		return catchUpMost
	}
	return 1
}

// reason returns the reason that is recorded if a tick is skipped.
func (j *job) reason(tick, now time.Time, view *ledger.State) string {
	switch {
	case view.NewestPause.Contains(tick):
		return skipPaused
	case !j.cfg.AllowOverlap && view.NewestRun.Contains(tick):
		return skipOverlap
	case j.cfg.StartingDeadline > 0 && now.Sub(tick) > j.cfg.StartingDeadline:
		return skipDeadline
	}
	return skipMissed
}

// shared returns the first tick after the newest accounted one that this schedule and the one in the ledger have; zero:
// there is none until then. It is still due when this schedule takes over.
func (j *job) shared(view ledger.State, until time.Time) time.Time {
	if view.Spec == j.schedule.String() {
		return time.Time{}
	}
	former, err := ticks.Read(view.Spec, j.name)
	if err != nil {
		return time.Time{}
	}
	at := j.schedule.Next(view.Last)
	for n := 0; n < mostTicks && !at.IsZero() && at.Before(until); n++ {
		other := former.Next(at.Add(-time.Millisecond))
		if other.IsZero() || other.Equal(at) {
			return other
		}
		at = j.schedule.Next(other.Add(-time.Millisecond))
	}
	return time.Time{}
}
