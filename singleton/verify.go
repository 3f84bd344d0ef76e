package singleton

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// VerifyConfig configures Job.Verify.
type VerifyConfig struct {
	// Since and Until limit the ticks: Since ≤ tick < Until. The defaults are the beginning of the
	// ledger, and the present time of the server.
	Since, Until time.Time

	// Schedule is used for the time in which the ledger does not know the schedule: before the
	// first change, if the text in the ledger cannot be parsed here, and after the thousand ticks
	// that are stored of a custom Schedule. Default: only the entries of that time are judged.
	Schedule schedule.Schedule
}

// A Verification is the result of Job.Verify.
type Verification struct {
	Job string `json:"job"`
	// Since and Until limit the ticks that were judged: Since ≤ tick < Until. If the ledger began
	// after the time that was asked for, Since is when it began, and Limit says so.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Limit string    `json:"limit,omitempty"`
	// Ticks is the number of ticks that the schedules have in that time, and Succeeded how many of
	// them succeeded. In the Unknown parts, only ticks that have an entry are counted.
	Ticks     int `json:"ticks"`
	Succeeded int `json:"succeeded"`
	// Pending are ticks that were not judged, because they are running, wait for a replica, or
	// were due within the last ten seconds.
	Pending []time.Time `json:"pending,omitempty"`
	// Unknown are the parts of the time whose schedule is not known, or whose entries the history
	// has dropped because of JobConfig.KeepRuns. Only entries of the history were judged there, so a
	// Verification with such a part does not show that nothing is missing or failed.
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
	Count int       `json:"count,omitempty"` // of several ticks
	// Kind is one of
	//
	//   - missing: the ledger has no entry of the tick
	//   - failed, unknown, skipped: the newest entry of the tick has that outcome
	//   - repeated: the tick was recorded again after a success
	//   - extra: the schedule that was in use does not have the tick
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
// succeed exactly once. Each tick is judged by the schedule that was in use at its time, see
// Schedules. A tick that was run again (Rerun) counts as its newest entry. Triggered runs are not
// judged.
//
// The history is limited by JobConfig.KeepRuns. Of the time of entries that were dropped, those that
// are kept are judged, and the time is in Unknown. At most a million ticks are judged in one call.
//
// The errors are ErrNoLedger, ErrNothingKept, ErrNewerSchema and a *ConfigError.
func (j *Job) Verify(ctx context.Context, cfg VerifyConfig) (Verification, error) {
	// In this order, a tick that ends meanwhile is in the history.
	state, err := j.Status(ctx)
	if err != nil {
		return Verification{}, err
	}
	changes, err := j.Schedules(ctx)
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
	if cfg.Until.IsZero() || cfg.Until.After(state.Now) {
		cfg.Until = state.Now
	}
	v := &verifier{cfg: cfg, state: state, changes: changes, runs: runs}
	if err := v.judge(); err != nil {
		return Verification{}, fmt.Errorf("singleton: verify job %q: %w", j.name, err)
	}
	return v.Verification, nil
}

// A verifier has what the ledger says about a job.
type verifier struct {
	Verification
	cfg     VerifyConfig
	state   Status
	changes []ScheduleChange
	runs    []Entry // newest first

	entries map[int64][]Entry // by tick in ms, newest first
	skips   []Entry           // of several ticks; all other entries of these ticks are newer
	oldest  time.Time         // the oldest tick of an entry
	wrong   int               // ticks with a finding
	joins   bool              // the last finding is about the tick before
}

func (v *verifier) judge() error {
	v.Job, v.Findings = v.state.Job, []Finding{}
	v.Since, v.Until = v.cfg.Since.UTC(), v.cfg.Until.UTC()
	v.index()
	switch begun := v.state.Begun.Add(time.Millisecond); { // the tick at Begun is not claimed
	case !v.state.Begun.IsZero() && v.Since.Before(begun):
		v.Since, v.Limit = begun, "the ledger began then"
	case v.cfg.Since.IsZero():
		v.Since, v.Limit = v.complete(), "the ledger has lost its beginning"
	}
	if !v.Since.Before(v.Until) {
		return ErrNothingKept
	}
	maps.DeleteFunc(v.entries, func(tick int64, _ []Entry) bool { return tick < v.Since.UnixMilli() || tick >= v.Until.UnixMilli() })
	complete := v.complete()
	if v.Since.Before(complete) {
		v.Unknown = append(v.Unknown, Span{v.Since, earlier(complete, v.Until), "the history has dropped older entries"})
	}
	for _, p := range v.parts(v.Since, v.Until) {
		p.complete = later(complete, p.since)
		if p.schedule == nil {
			v.Unknown = append(v.Unknown, Span{p.since, p.until, p.why})
			p.complete = p.until
		}
		v.known(p)
		if err := v.all(p); err != nil {
			return err
		}
	}
	v.unread()
	for tick, entries := range v.entries {
		v.repeated(time.UnixMilli(tick).UTC(), entries)
	}
	if v.Ticks == 0 && len(v.Findings) == 0 && !complete.Before(v.Until) {
		return ErrNothingKept
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return a.Tick.Compare(b.Tick) })
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// complete returns the instant from which on the history has every tick.
func (v *verifier) complete() (at time.Time) {
	if !v.state.Cut.IsZero() {
		at = v.state.Cut.Add(time.Millisecond)
	}
	if v.state.Begun.IsZero() {
		at = later(at, v.oldest)
	}
	return at
}

// index sorts the entries of the history by their ticks.
func (v *verifier) index() {
	v.entries, v.oldest = map[int64][]Entry{}, v.state.Last.Add(time.Millisecond)
	for _, e := range v.runs {
		if e.Triggered {
			continue
		}
		v.oldest = earlier(v.oldest, e.Tick)
		if e.Count > 1 {
			v.skips = append(v.skips, e)
		} else {
			v.entries[e.Tick.UnixMilli()] = append(v.entries[e.Tick.UnixMilli()], e)
		}
	}
}

// known judges the entries of a part before the instant from which on all its ticks are judged. It
// finds those that the schedule does not have.
func (v *verifier) known(p part) {
	for at, entries := range v.entries {
		tick := time.UnixMilli(at).UTC()
		switch {
		case !p.has(tick):
		case p.schedule != nil && !p.schedule.Next(tick.Add(-time.Millisecond)).Equal(tick):
			v.Findings = append(v.Findings, Finding{Tick: tick, Kind: FindingExtra, Detail: "the schedule that was in use does not have it; it is recorded as " + entries[0].Outcome})
		case tick.Before(p.complete):
			v.joins = false
			v.Ticks++
			v.expect(tick)
		}
	}
	for _, e := range v.skips {
		v.joins = false
		for tick := p.next(later(e.Tick, p.since)); !tick.IsZero() && tick.Before(p.complete) && !tick.After(e.Last); tick = p.next(tick.Add(time.Millisecond)) {
			if v.entries[tick.UnixMilli()] == nil {
				v.Ticks++
				v.expect(tick)
				v.joins = true
			} else {
				v.joins = false
			}
		}
	}
	v.joins = false
}

// unread reports the skipped ticks of parts without a schedule. If an entry begins before Since, their
// number is not known.
func (v *verifier) unread() {
	for _, e := range v.skips {
		parts := v.parts(e.Tick, e.Last.Add(time.Millisecond))
		if !slices.ContainsFunc(parts, func(p part) bool { return p.schedule == nil && p.until.After(v.Since) && p.since.Before(v.Until) }) {
			continue
		}
		n := e.Count
		for _, p := range parts {
			for tick := p.next(later(e.Tick, p.since)); !tick.IsZero() && tick.Before(p.until) && !tick.After(e.Last); tick = p.next(tick.Add(time.Millisecond)) {
				n--
			}
			for tick := range v.entries { // they were run again
				if at := time.UnixMilli(tick); p.schedule == nil && p.has(at) && !at.Before(e.Tick) && !at.After(e.Last) {
					n--
				}
			}
		}
		if n > 0 {
			v.Ticks += n
			v.Findings = append(v.Findings, Finding{Tick: e.Tick, Last: e.Last, Count: n, Kind: OutcomeSkipped, Detail: e.Error})
		}
	}
}

// all judges the ticks of a part, from the first one that the history must have.
func (v *verifier) all(p part) error {
	for tick := p.next(p.complete); !tick.IsZero() && tick.Before(p.until); tick = p.next(tick.Add(time.Millisecond)) {
		if v.Ticks++; v.Ticks > mostJudged {
			return &ConfigError{Field: "VerifyConfig.Since", Value: v.Since.String(), Rule: fmt.Sprintf("an instant after which there are at most %d ticks", mostJudged)}
		}
		before := v.wrong
		v.expect(tick)
		v.joins = v.wrong > before
	}
	return nil
}

// A part is a part of the time with one schedule; nil: it is not known.
type part struct {
	since, until time.Time
	complete     time.Time // all ticks from then on are judged, and before only those with an entry
	schedule     schedule.Schedule
	why          string // it is not known
}

func (p part) has(t time.Time) bool { return !t.Before(p.since) && t.Before(p.until) }

// next returns the first tick of the schedule from t on; zero: there is none.
func (p part) next(t time.Time) time.Time {
	if p.schedule == nil {
		return time.Time{}
	}
	return p.schedule.Next(t.Add(-time.Millisecond))
}

// parts divides the time since ≤ t < end by the schedules that were in use. A tick at the instant of a
// change belongs to the former schedule.
func (v *verifier) parts(since, end time.Time) []part {
	parts := []part{}
	for _, c := range slices.Backward(v.changes) {
		from := c.Since.Add(time.Millisecond)
		if !from.Before(end) {
			continue // not in this time, or the ledger was reset
		}
		if c.Schedule == nil {
			parts = append(parts, part{until: end, schedule: v.cfg.Schedule, why: c.Err.Error()})
		} else {
			if last, ok := ticks.End(c.Schedule); ok && last.Before(end) {
				parts = append(parts, part{until: end, schedule: v.cfg.Schedule, why: "the ledger has only the next thousand ticks of a custom schedule"})
				end = last.Add(time.Millisecond)
			}
			parts = append(parts, part{until: end, schedule: c.Schedule})
		}
		if end = from; !end.After(since) {
			break
		}
	}
	if end.After(since) {
		parts = append(parts, part{until: end, schedule: v.cfg.Schedule, why: "the ledger does not have its schedule"})
	}
	slices.Reverse(parts)
	for i := range parts {
		parts[i].since, since = since, parts[i].until
	}
	return slices.DeleteFunc(parts, func(p part) bool { return !p.since.Before(p.until) })
}

// expect judges a tick that the schedule or the history has.
func (v *verifier) expect(tick time.Time) {
	if open := slices.ContainsFunc(v.state.Open, func(o Open) bool { return !o.Triggered && o.Tick.Equal(tick) }); open {
		v.Pending = append(v.Pending, tick.UTC())
		return
	}
	if entries := v.entries[tick.UnixMilli()]; len(entries) > 0 {
		v.outcome(tick, entries[0])
		return
	}
	if i := slices.IndexFunc(v.skips, func(e Entry) bool { return !tick.Before(e.Tick) && !tick.After(e.Last) }); i >= 0 {
		v.found(tick, OutcomeSkipped, v.skips[i].Error)
		return
	}
	switch {
	case !tick.After(v.state.Last):
		v.found(tick, FindingMissing, "the ledger has no entry of it")
	case v.state.Paused:
		v.found(tick, FindingMissing, "the job is paused")
	case slices.ContainsFunc(v.state.Open, func(o Open) bool { return o.Running }), v.state.Now.Sub(tick) < graceOfDue:
		v.Pending = append(v.Pending, tick.UTC()) // a replica records it when the run has ended
	default:
		v.found(tick, FindingMissing, "it is due, and no replica has claimed it")
	}
}

// outcome judges the newest entry of a tick.
func (v *verifier) outcome(tick time.Time, e Entry) {
	if e.Outcome == OutcomeSucceeded {
		v.Succeeded++
		return
	}
	v.found(tick, e.Outcome, e.Error)
}

// repeated reports entries that follow a success.
func (v *verifier) repeated(tick time.Time, entries []Entry) {
	for i, e := range entries {
		if e.Outcome == OutcomeSucceeded && i > 0 {
			v.Findings = append(v.Findings, Finding{Tick: tick, Kind: FindingRepeated, Detail: fmt.Sprintf(
				"it succeeded with token %d, and then it was recorded as %s with token %d", e.Token, entries[i-1].Outcome, entries[i-1].Token)})
		}
	}
}

// found adds a finding. Consecutive ticks of one kind are one finding.
func (v *verifier) found(tick time.Time, kind, detail string) {
	tick = tick.UTC()
	v.wrong++
	if n := len(v.Findings) - 1; n >= 0 && v.joins {
		if f := &v.Findings[n]; f.Kind == kind && f.Detail == detail {
			f.Last, f.Count = tick, max(f.Count, 1)+1
			return
		}
	}
	v.Findings = append(v.Findings, Finding{Tick: tick, Kind: kind, Detail: detail})
}
