package singleton

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// VerifyConfig configures Job.Verify.
type VerifyConfig struct {
	// Since and Until limit the ticks: Since ≤ tick < Until. The defaults are the start of what the
	// ledger keeps, and the present time of the server.
	Since, Until time.Time

	// Schedule is used for the time in which the ledger does not know the schedule: before the
	// first change, if the text in the ledger cannot be parsed here, and after the thousand ticks
	// that are stored of a custom Schedule. Default: the ticks of that time are not judged.
	Schedule schedule.Schedule

	// KeepRuns is JobConfig.KeepRuns of the job. A history with fewer entries has all of them
	// since the ledger began. Default: that is not known, and the oldest entry is the limit.
	KeepRuns int
}

// A Verification is the result of Job.Verify.
type Verification struct {
	Job string `json:"job"`
	// Since and Until limit the ticks that were judged: Since ≤ tick < Until. If the ledger keeps
	// less than was asked for, Since is where it begins, and Limit says why.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Limit string    `json:"limit,omitempty"`
	// Ticks is the number of ticks that the schedules have in that time, and Succeeded how many of
	// them succeeded.
	Ticks     int `json:"ticks"`
	Succeeded int `json:"succeeded"`
	// Pending are ticks that were not judged, because they are running, wait for a replica, or
	// were due within the last ten seconds.
	Pending []time.Time `json:"pending,omitempty"`
	// Unknown are the parts of the time whose schedule is not known. Only entries of the history
	// were judged there, so a Verification with such a part does not show that nothing is missing.
	Unknown  []Span    `json:"unknown,omitempty"`
	Findings []Finding `json:"findings"` // ordered by tick
}

// A Span is a range of instants t with Since ≤ t < Until.
type Span struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"` // the schedule is not known
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

// ErrNothingKept is returned by Verify if the ledger keeps nothing of the time, or the time is empty.
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
// The history is limited by JobConfig.KeepRuns. Earlier ticks are not reported as missing: Since
// of the Verification is the first instant since when the history is complete. At most a million
// ticks are judged in one call.
//
// The errors are ErrNoLedger, ErrNothingKept, ErrNewerSchema and a *ConfigError.
func (j *Job) Verify(ctx context.Context, cfg VerifyConfig) (Verification, error) {
	if cfg.KeepRuns < 0 || cfg.KeepRuns > mostEntries {
		return Verification{}, &ConfigError{Field: "VerifyConfig.KeepRuns", Value: strconv.Itoa(cfg.KeepRuns), Rule: "0 (not known) or up to 10000"}
	}
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

	entries map[int64][]Entry // of runs, by tick in ms, newest first
	skips   []Entry           // of skipped ticks, newest first
	wrong   int               // ticks with a finding
	joins   bool              // the last finding is about the tick before
}

func (v *verifier) judge() error {
	v.Job, v.Findings = v.state.Job, []Finding{}
	v.Since, v.Until = v.cfg.Since.UTC(), v.cfg.Until.UTC()
	if kept, why := v.kept(); v.cfg.Since.Before(kept) {
		v.Since, v.Limit = kept.UTC(), why
	}
	if !v.Since.Before(v.Until) {
		return ErrNothingKept
	}
	v.index()
	expected := map[int64]bool{}
	begin := v.Since
	for _, part := range v.parts() {
		if !begin.Before(part.until) {
			continue
		}
		if part.schedule == nil {
			v.Unknown = append(v.Unknown, Span{begin, part.until, part.why})
			begin = part.until
			continue
		}
		for tick := part.schedule.Next(begin.Add(-time.Millisecond)); !tick.IsZero() && tick.Before(part.until); tick = part.schedule.Next(tick) {
			if v.Ticks++; v.Ticks > mostJudged {
				return &ConfigError{Field: "VerifyConfig.Since", Value: v.Since.String(), Rule: fmt.Sprintf("an instant from when on there are at most %d ticks", mostJudged)}
			}
			expected[tick.UnixMilli()] = true
			before := v.wrong
			v.expect(tick)
			v.joins = v.wrong > before
		}
		begin = part.until
	}
	v.joins = false
	for tick, entries := range v.entries {
		at := time.UnixMilli(tick).UTC()
		v.repeated(at, entries)
		if !expected[tick] {
			v.unexpected(at, entries[0])
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b Finding) int { return a.Tick.Compare(b.Tick) })
	return nil
}

// kept returns the instant from which on the history is complete, and why not before.
func (v *verifier) kept() (at time.Time, why string) {
	n := len(v.runs)
	if n > 0 && (v.cfg.KeepRuns == 0 || n >= v.cfg.KeepRuns || v.state.Begun.IsZero()) {
		// Entries that were dropped ended before the oldest one did, so their ticks were not later.
		oldest := v.runs[n-1]
		for _, end := range []time.Time{oldest.Tick, oldest.Last, oldest.End} {
			if end.After(at) {
				at = end
			}
		}
		at, why = at.Add(time.Millisecond), "the history keeps no older entries"
	}
	if begun := v.state.Begun.Add(time.Millisecond); !v.state.Begun.IsZero() && at.Before(begun) { // the tick at Begun is not claimed
		at, why = begun, "the ledger began then"
	}
	return at, why
}

// index sorts the entries of the history by their ticks.
func (v *verifier) index() {
	v.entries = map[int64][]Entry{}
	for _, e := range v.runs {
		if e.Count > 0 {
			v.skips = append(v.skips, e)
			continue
		}
		if e.Triggered.IsZero() && !e.Tick.Before(v.Since) && e.Tick.Before(v.Until) {
			v.entries[e.Tick.UnixMilli()] = append(v.entries[e.Tick.UnixMilli()], e)
		}
	}
}

// A part is a part of the time with one schedule; nil: it is not known.
type part struct {
	until    time.Time
	schedule schedule.Schedule
	why      string // it is not known
}

// parts divides the time by the schedules that were in use. A tick at the instant of a change
// belongs to the former schedule.
func (v *verifier) parts() []part {
	parts, end := []part{}, v.Until
	for _, c := range slices.Backward(v.changes) {
		from := c.Since.Add(time.Millisecond)
		if !from.Before(end) {
			continue // not in this time, or the ledger was reset
		}
		if c.Schedule == nil {
			parts = append(parts, part{end, v.cfg.Schedule, c.Err.Error()})
		} else {
			if last, ok := ticks.End(c.Schedule); ok && last.Before(end) {
				parts = append(parts, part{end, v.cfg.Schedule, "the ledger has only the next thousand ticks of a custom schedule"})
				end = last.Add(time.Millisecond)
			}
			parts = append(parts, part{end, c.Schedule, ""})
		}
		if end = from; !end.After(v.Since) {
			break
		}
	}
	if end.After(v.Since) {
		parts = append(parts, part{end, v.cfg.Schedule, "the ledger does not have it"})
	}
	slices.Reverse(parts)
	return parts
}

// expect judges a tick that the schedule has.
func (v *verifier) expect(tick time.Time) {
	if open := slices.ContainsFunc(v.state.Open, func(o Open) bool { return o.Tick.Equal(tick) }); open {
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
	case len(v.state.Open) > 0, v.state.Now.Sub(tick) < graceOfDue:
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

// unexpected judges an entry at an instant that the schedules do not have.
func (v *verifier) unexpected(tick time.Time, newest Entry) {
	if slices.ContainsFunc(v.Unknown, func(s Span) bool { return !tick.Before(s.Since) && tick.Before(s.Until) }) {
		if newest.Outcome != OutcomeSucceeded {
			v.found(tick, newest.Outcome, newest.Error)
		}
		return
	}
	v.Findings = append(v.Findings, Finding{Tick: tick, Kind: FindingExtra, Detail: "the schedule that was in use does not have it; it is recorded as " + newest.Outcome})
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
