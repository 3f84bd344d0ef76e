package singleton

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A Verification is the result of Job.Verify.
type Verification struct {
	Job string `json:"job"`
	// Since and Until limit the ticks that were judged: Since ≤ tick < Until. If the ledger began
	// after the time that was asked for, Since is when it began. Limit says why Since is not earlier.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Limit string    `json:"limit,omitempty"`
	// Ticks is the number of ticks that the schedule has in that time, and Succeeded how many of
	// them succeeded. In the Unknown part, only ticks that have an entry are counted.
	Ticks     int `json:"ticks"`
	Succeeded int `json:"succeeded"`
	// Pending are ticks that were not judged, because they are running, wait for a replica, or
	// were due within the last ten seconds.
	Pending []time.Time `json:"pending,omitempty"`
	// Unknown is the part of the time, if any, that the schedule of today does not tell: before the
	// newest change of the schedule, before entries that the history has dropped because of
	// JobConfig.KeepRuns, or all of it for a Schedule of your own. Only entries of the history were
	// judged there, so a Verification with such a part does not show that nothing is missing or failed.
	Unknown  []Span    `json:"unknown,omitempty"`
	Findings []Finding `json:"findings"` // ordered by tick
}

// A Span is a range of instants t with Since ≤ t < Until.
type Span struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"` // it could not be judged completely
}

// A Finding is a tick, or consecutive ticks, for which the ledger does not have exactly one
// success.
type Finding struct {
	Tick  time.Time `json:"tick"`
	Last  time.Time `json:"last,omitzero"`   // the last one of several ticks
	Count int       `json:"count,omitempty"` // of several ticks; some may be before Since if they are in the Unknown part
	// Kind is one of
	//
	//   - missing: the ledger has no entry of the tick
	//   - failed, unknown, skipped: the newest entry of the tick has that outcome
	//   - repeated: the tick was recorded again after a success
	//   - extra: the schedule does not have the tick
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// The kinds of a Finding that are not outcomes.
const (
	FindingMissing  = "missing"
	FindingRepeated = "repeated"
	FindingExtra    = "extra"
)

// ErrNothingKept is returned by Verify if the history has dropped all ticks of the time, or the time
// is empty.
var ErrNothingKept = errors.New("singleton: the ledger keeps no ticks of this time")

const (
	mostEntries = 10_000    // of a history; see JobConfig.KeepRuns
	mostJudged  = 1_000_000 // ticks
	graceOfDue  = 10 * time.Second
)

// Verify compares the history of the job with its schedule, and reports each tick that did not
// succeed exactly once. The ledger keeps only the present schedule, so ticks that were due before
// the newest change are not judged. A tick that was run again (Rerun) counts as its newest entry.
// Triggered runs are not judged.
//
// since and until limit the ticks: since ≤ tick < until. If they are zero, they are the newest change of the
// schedule, or the beginning of the ledger, and the present time of the server.
//
// The history is limited by JobConfig.KeepRuns. At most a million ticks are judged in one call.
//
// The errors are ErrNoLedger, ErrNothingKept, ErrNewerSchema and a *noonlock.ConfigError.
func (j *Job) Verify(ctx context.Context, since, until time.Time) (Verification, error) {
	// In this order, a tick that ends meanwhile is in the history.
	state, err := j.Status(ctx)
	if err != nil {
		return Verification{}, err
	}
	runs, err := j.Runs(ctx, mostEntries)
	if err != nil {
		return Verification{}, err
	}
	after, err := j.Status(ctx) // entries may have been dropped meanwhile
	if err != nil {
		return Verification{}, err
	}
	state.Cut = after.Cut
	if until.IsZero() || until.After(state.Now) {
		until = state.Now
	}
	v := &verifier{since: since, until: until, state: state, runs: runs}
	if err := v.judge(); err != nil {
		return Verification{}, fmt.Errorf("singleton: verify job %q: %w", j.name, err)
	}
	return v.Verification, nil
}

// A verifier has what the ledger says about a job.
type verifier struct {
	Verification
	since, until time.Time
	state        Status
	runs         []HistoryEntry // newest first

	schedule schedule.Schedule
	entries  map[int64][]HistoryEntry // by tick in ms, newest first
	skips    []HistoryEntry           // of several ticks; all other entries of these ticks are newer
	oldest   time.Time                // the oldest tick of an entry
	changed  time.Time                // since when the schedule is in use; zero: from the beginning
}

func (v *verifier) judge() error {
	v.Job, v.Findings = v.state.Job, []Finding{}
	v.Since, v.Until = v.since.UTC(), v.until.UTC()
	v.index()
	start, why := v.start()
	if v.Since.Before(start) && (v.since.IsZero() || why == ledgerBegan) {
		v.Since, v.Limit = start, why
	}
	from := start
	if dropped := v.state.Cut.Add(time.Millisecond); !v.state.Cut.IsZero() && !dropped.Before(start) {
		from, why = dropped, "the history has dropped older entries"
	}
	if !v.Since.Before(v.Until) {
		return ErrNothingKept
	}
	maps.DeleteFunc(v.entries, func(tick int64, _ []HistoryEntry) bool {
		return tick < v.Since.UnixMilli() || tick >= v.Until.UnixMilli()
	})
	s, err := ticks.Read(v.state.Schedule)
	if err == nil {
		v.schedule = s
	} else {
		from, why = v.Until, "the ledger does not have the ticks of the schedule: "+err.Error()
	}
	if v.Since.Before(from) {
		v.Unknown = []Span{{v.Since, earlier(from, v.Until), why}}
	}
	v.known(from)
	if err := v.all(later(from, v.Since)); err != nil {
		return err
	}
	for tick, entries := range v.entries {
		v.repeated(time.UnixMilli(tick).UTC(), entries)
	}
	if v.Ticks == 0 && len(v.Findings) == 0 && !from.Before(v.Until) {
		return ErrNothingKept
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return a.Tick.Compare(b.Tick) })
	return nil
}

const ledgerBegan = "the ledger began then"

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// index sorts the entries of the history by their ticks.
func (v *verifier) index() {
	v.entries, v.oldest = map[int64][]HistoryEntry{}, v.state.Last.Add(time.Millisecond)
	for _, e := range v.runs {
		switch {
		case e.Triggered:
			continue
		case (e.Error == skipRescheduled || e.Error == skipRemoved && e.Count == 0) && e.Outcome == OutcomeSkipped:
			v.changed = later(v.changed, e.Last.Add(time.Millisecond))
		case e.Count > 1:
			v.skips = append(v.skips, e)
		default:
			v.entries[e.Tick.UnixMilli()] = append(v.entries[e.Tick.UnixMilli()], e)
		}
		v.oldest = earlier(v.oldest, e.Tick)
	}
}

// start returns where the time begins that the ledger and its schedule tell, and why.
func (v *verifier) start() (at time.Time, why string) {
	at, why = v.state.Begun.Add(time.Millisecond), ledgerBegan // the tick at Begun is not claimed
	if v.state.Begun.IsZero() {
		at, why = v.oldest, "the ledger has lost its beginning"
	}
	if v.changed.After(at) {
		at, why = v.changed, "the schedule changed then"
	}
	return at, why
}

// known judges the entries of the history before an instant, and finds later ones that the schedule
// does not have.
func (v *verifier) known(before time.Time) {
	for at, entries := range v.entries {
		tick := time.UnixMilli(at).UTC()
		switch {
		case tick.Before(before):
			v.Ticks++
			v.found(tick, v.expect(tick))
		case !v.schedule.Next(tick.Add(-time.Millisecond)).Equal(tick):
			v.Findings = append(v.Findings, Finding{Tick: tick, Kind: FindingExtra, Detail: "the schedule does not have it; it is recorded as " + string(entries[0].Outcome)})
		}
	}
	for _, e := range v.skips {
		if e.Last.Before(v.Since) || !e.Last.Before(before) {
			continue
		}
		n := e.Count
		for at := range v.entries { // they were run again
			if tick := time.UnixMilli(at); !tick.Before(e.Tick) && !tick.After(e.Last) {
				n--
			}
		}
		if n > 0 {
			v.Ticks += n
			v.Findings = append(v.Findings, Finding{Tick: e.Tick, Last: e.Last, Count: n, Kind: string(OutcomeSkipped), Detail: e.Error})
		}
	}
}

// all judges the ticks of the schedule from an instant on.
func (v *verifier) all(from time.Time) error {
	if v.schedule == nil {
		return nil
	}
	var before verdict
	for tick := v.schedule.Next(from.Add(-time.Millisecond)); !tick.IsZero() && tick.Before(v.Until); tick = v.schedule.Next(tick) {
		if v.Ticks++; v.Ticks > mostJudged {
			return &noonlock.ConfigError{Package: "singleton", Field: "since", Value: v.Since.String(), Rule: fmt.Sprintf("an instant after which there are at most %d ticks", mostJudged)}
		}
		what := v.expect(tick)
		if what != (verdict{}) && what == before { // consecutive ticks of one kind are one finding
			f := &v.Findings[len(v.Findings)-1]
			f.Last, f.Count = tick.UTC(), max(f.Count, 1)+1
		} else {
			v.found(tick, what)
		}
		before = what
	}
	return nil
}

// A verdict is what is wrong with a tick, as in a Finding; zero: nothing.
type verdict struct{ kind, detail string }

// expect judges a tick that the schedule or the history has.
func (v *verifier) expect(tick time.Time) verdict {
	if open := slices.ContainsFunc(v.state.Open, func(o OpenRun) bool { return !o.Triggered && o.Tick.Equal(tick) }); open {
		v.Pending = append(v.Pending, tick.UTC())
		return verdict{}
	}
	if entries := v.entries[tick.UnixMilli()]; len(entries) > 0 {
		if entries[0].Outcome == OutcomeSucceeded {
			v.Succeeded++
			return verdict{}
		}
		return verdict{string(entries[0].Outcome), entries[0].Error}
	}
	if i := slices.IndexFunc(v.skips, func(e HistoryEntry) bool { return !tick.Before(e.Tick) && !tick.After(e.Last) }); i >= 0 {
		return verdict{string(OutcomeSkipped), v.skips[i].Error}
	}
	switch {
	case !tick.After(v.state.Last):
		return verdict{FindingMissing, "the ledger has no entry of it"}
	case v.state.Paused:
		return verdict{FindingMissing, "the job is paused"}
	case slices.ContainsFunc(v.state.Open, func(o OpenRun) bool { return o.Running }), v.state.Now.Sub(tick) < graceOfDue:
		v.Pending = append(v.Pending, tick.UTC()) // a replica records it when the run has ended
		return verdict{}
	}
	return verdict{FindingMissing, "it is due, and no replica has claimed it"}
}

// repeated reports entries that follow a success.
func (v *verifier) repeated(tick time.Time, entries []HistoryEntry) {
	for i, e := range entries {
		if e.Outcome == OutcomeSucceeded && i > 0 {
			v.Findings = append(v.Findings, Finding{Tick: tick, Kind: FindingRepeated, Detail: fmt.Sprintf(
				"it succeeded with token %d, and then it was recorded as %s with token %d", e.Token, entries[i-1].Outcome, entries[i-1].Token)})
		}
	}
}

// found adds a finding, if there is one.
func (v *verifier) found(tick time.Time, what verdict) {
	if what != (verdict{}) {
		v.Findings = append(v.Findings, Finding{Tick: tick.UTC(), Kind: what.kind, Detail: what.detail})
	}
}
