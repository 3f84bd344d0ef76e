package singleton

import (
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// Why ticks are skipped, as the ledger has it.
const (
	skipMissed   = "missed"   // nobody ran it in time, and CatchUp runs another
	skipOverlap  = "overlap"  // it came due while an earlier one was being run
	skipDeadline = "deadline" // StartingDeadline was over
	skipPaused   = "paused"   // it came due while the job was paused

	// skipRescheduled is written by the ledger itself, with the count 1 for at least
	// one: it was of a schedule that another has replaced before it was run.
	skipRescheduled = "rescheduled"
)

// A plan is what is to be done about the ticks of a job at one moment.
type plan struct {
	run   time.Time      // claim this tick now; zero: none
	until time.Time      // but not after this; zero: whenever
	skip  *lockcore.Skip // ticks before it that will not be run
	next  time.Time      // when the next one comes due, its jitter included; zero: never, or not known yet
}

const (
	// mostTicks bounds how many ticks one plan looks at; the rest is the next's.
	mostTicks = 100_000

	// kept is how many due ticks a plan chooses from: those that may be run, and
	// the one before them.
	kept = catchUpMost + 1
)

// dueTicks are the ticks that are due. Of many only the newest are kept.
type dueTicks struct {
	first  time.Time
	count  int
	newest []time.Time
}

func (d *dueTicks) add(tick time.Time) {
	if d.count == 0 {
		d.first = tick
	}
	d.count++
	if len(d.newest) == 2*kept {
		d.newest = d.newest[:copy(d.newest, d.newest[kept:])]
	}
	d.newest = append(d.newest, tick)
}

// skipped makes one entry of all but the newest n ticks; nil if that is none.
func (d *dueTicks) skipped(n int) *lockcore.Skip {
	if d.count == n {
		return nil
	}
	return &lockcore.Skip{First: d.first, Last: d.newest[len(d.newest)-n-1], Count: d.count - n}
}

// plan decides which of the unaccounted ticks that are due now is run, and which
// are skipped. It depends on its arguments alone, so that replicas of one view
// decide the same.
func (j *job) plan(view lockcore.LedgerState, now time.Time) plan {
	var due dueTicks
	var p plan
	for tick := j.schedule.Next(view.Last).UTC(); !tick.IsZero(); {
		next := j.schedule.Next(tick).UTC()
		if at := tick.Add(j.delay(tick, next)); at.After(now) {
			p.next = at
			break
		}
		due.add(tick)
		if due.count == mostTicks {
			// More than anybody wants to run. Skip those, and plan again.
			p.skip = j.skip(&due, kept, now, view)
			return p
		}
		tick = next
	}
	limit := j.limit()
	n := min(j.most(), len(due.newest))
	for n > 0 && limit > 0 && now.Sub(due.newest[len(due.newest)-n]) > limit {
		n--
	}
	if n > 0 {
		p.run = due.newest[len(due.newest)-n]
		if limit > 0 {
			p.until = p.run.Add(limit)
		}
	}
	p.skip = j.skip(&due, n, now, view)
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

// skip makes one entry of all but the newest n due ticks, with a reason.
func (j *job) skip(due *dueTicks, n int, now time.Time, view lockcore.LedgerState) *lockcore.Skip {
	s := due.skipped(n)
	if s == nil {
		return nil
	}
	s.Reason = skipMissed
	switch {
	case !s.Last.After(view.Resumed):
		s.Reason = skipPaused
	case j.cfg.Overlap == OverlapForbid && !s.Last.After(view.Freed):
		s.Reason = skipOverlap
	case j.cfg.StartingDeadline > 0 && now.Sub(s.Last) > j.cfg.StartingDeadline:
		s.Reason = skipDeadline
	}
	return s
}
