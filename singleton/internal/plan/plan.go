// Package plan decides which due ticks of a job run and which are skipped. Package replica acts on its plans.
package plan

import (
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// The reasons for skipped ticks, as recorded in the ledger.
const (
	SkipMissed   = "missed"   // not run in time, and not selected by CatchUp
	SkipOverlap  = "overlap"  // due during an earlier run
	SkipDeadline = "deadline" // not begun within StartingDeadline
	SkipPaused   = "paused"   // due while the job was paused
)

// A Policy is the part of a job's definition that selects ticks. singleton.JobConfig documents its fields.
type Policy struct {
	Schedule         ticks.Schedule
	CatchUpAll       bool
	StartingDeadline time.Duration
	AllowOverlap     bool
}

// A Plan is the next step for the ticks of a job.
type Plan struct {
	Run   time.Time    // tick to claim now; zero if there is none
	Until time.Time    // latest begin of Run; zero without a limit
	Skip  *ledger.Skip // earlier ticks that do not run, recorded first
	Next  time.Time    // next tick that is not due; zero if unknown
}

const (
	// MostCatchUp limits the missed ticks that CatchUpAll runs.
	MostCatchUp = 100

	// mostTicks limits the ticks of one plan; the next plan continues.
	mostTicks = 100_000

	// kept is how many of the newest due ticks a plan needs one by one: those that may run, and the one before them.
	kept = MostCatchUp + 1
)

// dueTicks are the ticks that are due. It has the newest ones one by one. It has the oldest ones as one Skip, up to the
// first tick with another reason.
type dueTicks struct {
	count  int
	newest []time.Time // at least kept, if there are as many
	oldest ledger.Skip // oldest ticks, all with one reason
	mixed  bool        // whether a later tick has another reason
}

// add adds a tick with the reason that is recorded if it is skipped.
func (d *dueTicks) add(tick time.Time, reason string) {
	if d.count == 0 {
		d.oldest = ledger.Skip{First: tick, Reason: reason}
	}
	d.mixed = d.mixed || reason != d.oldest.Reason
	if !d.mixed {
		d.oldest.Last = tick
		d.oldest.Count++
	}
	d.count++
	if len(d.newest) == 2*kept {
		d.newest = d.newest[:copy(d.newest, d.newest[kept:])]
	}
	d.newest = append(d.newest, tick)
}

// skipped returns one Skip for all ticks but the newest n, or nil if there are only n. If these ticks have several
// reasons, the Skip has only those before the second reason, and all is false.
func (d *dueTicks) skipped(n int) (skip *ledger.Skip, all bool) {
	s := d.oldest
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

// Plan decides which due tick runs and which are skipped. If ticks are skipped for several
// reasons, it returns those with the first reason; the next plan continues after they are recorded.
// Replicas with the same state decide the same.
func (p *Policy) Plan(state *ledger.State, now time.Time) Plan {
	var due dueTicks
	var plan Plan
	for tick := p.Schedule.Next(state.Last).UTC(); !tick.IsZero(); {
		if tick.After(now) {
			plan.Next = tick
			break
		}
		due.add(tick, p.reason(tick, now, state))
		if due.count == mostTicks || due.mixed && due.count-due.oldest.Count == kept {
			// More ticks than CatchUp can run. Their oldest ones are skipped, and the next plan continues.
			plan.Skip, _ = due.skipped(kept)
			return plan
		}
		tick = p.Schedule.Next(tick).UTC()
	}
	limit, n := p.StartingDeadline, 1 // n of the newest ticks may run, the oldest of these first
	if p.CatchUpAll {
		n = MostCatchUp
	}
	n = min(n, len(due.newest))
	for n > 0 && limit > 0 && now.Sub(due.newest[len(due.newest)-n]) > limit {
		n--
	}
	var all bool
	plan.Skip, all = due.skipped(n)
	if n > 0 && all {
		plan.Run = due.newest[len(due.newest)-n]
		if limit > 0 {
			plan.Until = plan.Run.Add(limit)
		}
	}
	return plan
}

// reason returns why a due tick is skipped if it does not run.
func (p *Policy) reason(tick, now time.Time, state *ledger.State) string {
	switch {
	case state.NewestPause.Contains(tick):
		return SkipPaused
	case !p.AllowOverlap && state.NewestRun.Contains(tick):
		return SkipOverlap
	case p.StartingDeadline > 0 && now.Sub(tick) > p.StartingDeadline:
		return SkipDeadline
	}
	return SkipMissed
}

// Shared returns the first tick after the newest accounted tick that this schedule and the one in the ledger have, or
// the zero time if there is none before until. Such a tick runs although the schedule changes.
func (p *Policy) Shared(job string, state *ledger.State, until time.Time) time.Time {
	if state.Spec == p.Schedule.String() {
		return time.Time{}
	}
	former, err := ticks.Read(state.Spec, job)
	if err != nil {
		return time.Time{}
	}
	at := p.Schedule.Next(state.Last)
	for n := 0; n < mostTicks && !at.IsZero() && at.Before(until); n++ {
		other := former.Next(at.Add(-time.Millisecond))
		if other.IsZero() || other.Equal(at) {
			return other
		}
		at = p.Schedule.Next(other.Add(-time.Millisecond))
	}
	return time.Time{}
}

// Retention returns how long a ledger is kept after its last use. It must exceed the
// longest interval of the schedule by far: without the ledger a tick could run twice.
func Retention(s ticks.Schedule) time.Duration {
	const most = 50 * 365 * 24 * time.Hour
	if s.Next(time.Now()).IsZero() {
		return 365 * 24 * time.Hour // without ticks, the job is only triggered
	}
	return min(2*min(longestInterval(s, time.Now()), most/2), most) + 30*24*time.Hour
}

// longestInterval returns the longest interval of the schedule in the next nine years, which have two leap years, or,
// if that is longer, in four ticks. The result may be up to ten days too short: shorter intervals, which do
// not affect the retention, are skipped.
func longestInterval(s ticks.Schedule, now time.Time) (longest time.Duration) {
	at := now
	for n := 0; n < 4 || at.Sub(now) < 9*365*24*time.Hour; n++ {
		next := s.Next(at)
		if next.IsZero() {
			break
		}
		longest = max(longest, next.Sub(at))
		at = Later(next, at.Add(10*24*time.Hour))
	}
	return longest
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
