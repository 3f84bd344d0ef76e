package singleton

import (
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Why ticks are skipped, as the ledger has it.
const (
	skipMissed   = "missed"   // none of the others: nobody ran it in time, and CatchUp runs another
	skipOverlap  = "overlap"  // it came due while an earlier one was being run
	skipDeadline = "deadline" // StartingDeadline was over
	skipPaused   = "paused"   // it came due while the job was paused

	// skipRescheduled: it was of a schedule that another has replaced before it was run.
	skipRescheduled = "rescheduled"
)

// A plan is what is to be done about the ticks of a job at one moment.
type plan struct {
	run   time.Time    // claim this tick now; zero: none
	until time.Time    // but not after this; zero: whenever
	skip  *ledger.Skip // ticks before it that will not be run, for one reason
	next  time.Time    // when the next one comes due, its jitter included; zero: never, or not known yet
}

const (
	// mostTicks bounds how many ticks one plan looks at; the rest is the next's.
	mostTicks = 100_000

	// kept is how many due ticks a plan chooses from: those that may be run, and
	// the one before them.
	kept = catchUpMost + 1
)

// dueTicks are the ticks that are due. Of many only the newest are kept, and how
// far the first one's reason to be skipped reaches.
type dueTicks struct {
	count  int
	newest []time.Time
	first  ledger.Skip // the first ticks, all for one reason
	mixed  bool        // there is another reason
}

// add adds a tick that is skipped for that reason if it is not run.
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

// skipped makes one entry of all but the newest n ticks; nil if that is none. If
// there is more than one reason it is of the first ones, and all is false.
func (d *dueTicks) skipped(n int) (skip *ledger.Skip, all bool) {
	s := d.first
	switch rest := d.count - n; {
	case rest == 0:
		return nil, true
	case s.Count < rest:
		return &s, false
	default:
		s.Last, s.Count = d.newest[len(d.newest)-n-1], rest
		return &s, true
	}
}

// plan decides which of the unaccounted ticks that are due now is run, and which
// are skipped. Of several reasons to skip it plans the first one alone, and what
// is run when those are recorded. It depends on its arguments alone, so that
// replicas of one view decide the same.
func (j *job) plan(view ledger.State, now time.Time) plan {
	var due dueTicks
	var p plan
	for tick := j.schedule.Next(view.Last).UTC(); !tick.IsZero(); {
		next := j.schedule.Next(tick).UTC()
		at := tick.Add(j.delay(tick, next))
		if at.After(now) {
			p.next = at
			break
		}
		due.add(tick, j.reason(tick, at, now, &view))
		if due.count == mostTicks || due.mixed && due.count-due.first.Count == kept {
			// More than anybody wants to run. Skip those, and plan again.
			p.skip, _ = due.skipped(kept)
			return p
		}
		tick = next
	}
	limit := j.limit()
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

// most is how many due ticks may be run, the newest ones.
func (j *job) most() int {
	if j.cfg.CatchUp == CatchUpAll {
		return catchUpMost
	}
	return 1
}

// limit is how late a tick may be begun; 0: no limit.
func (j *job) limit() time.Duration {
	if j.cfg.CatchUp == CatchUpNone && j.cfg.StartingDeadline == 0 {
		return onTimeWithin + j.cfg.Jitter
	}
	return j.cfg.StartingDeadline
}

// reason is why a tick is skipped that came due at `at`, if it is.
func (j *job) reason(tick, at, now time.Time, view *ledger.State) string {
	switch {
	case within(at, view.Halted, view.Resumed):
		return skipPaused
	case j.cfg.Overlap == OverlapForbid && within(at, view.Held, view.Freed):
		return skipOverlap
	case j.cfg.StartingDeadline > 0 && now.Sub(tick) > j.cfg.StartingDeadline:
		return skipDeadline
	}
	return skipMissed
}

// within reports that something was in a span of time. If it is not known when that
// began, zero, it has always been; if it has not ended, zero, it has never been.
func within(at, begin, end time.Time) bool { return !at.After(end) && !at.Before(begin) }
