package singleton_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A pastJob makes a random history of a job in its ledger, and keeps its own account of it.
type pastJob struct {
	t      *testing.T
	f      *fleet
	rnd    *rand.Rand
	name   string
	keep   int
	ledger *ledger.Ledger
	state  ledger.State
	now    schedule.Schedule // in use
	hidden bool              // its text in the ledger cannot be read, as without the data of its zone

	begun   time.Time      // the ledger
	changed time.Time      // the schedule; zero: never
	last    time.Time      // the newest tick that is accounted for
	history []pastEntry    // oldest first
	cut     time.Time      // the newest tick of a dropped entry
	did     map[string]int // how often each kind of step happened
}

// A pastEntry is an entry of the history: of ticks with one outcome.
type pastEntry struct {
	ticks   []time.Time // none: of a triggered run, or of a change of the schedule
	outcome string
	why     string    // of skipped ticks
	upto    time.Time // of a change of the schedule
}

func (p *pastJob) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// define starts a replica of another definition, with ticks every so often.
func (p *pastJob) define(every time.Duration, hidden bool) {
	ctx := p.t.Context()
	s, err := schedule.Parse("@every "+every.String(), schedule.Config{})
	p.must(err)
	text, _ := ticks.Write(s, "")
	if hidden {
		text = fmt.Sprintf("%d 12 * * * in Nowhere/Nothing", int(every.Seconds())%60)
	}
	l, err := ledger.New(p.f.reader, p.name, ledger.Config{KeepRuns: p.keep, MaxAttempts: 1, Definition: text, Schedule: text})
	p.must(err)
	if p.ledger != nil {
		p.must(p.ledger.Leave(ctx, p.state))
	}
	st, err := l.Open(ctx, ledger.State{})
	p.must(err)
	changed := p.ledger != nil && text != p.state.Spec
	switch {
	case p.ledger == nil:
		p.begun = st.Last
	case changed:
		p.changed = st.Last
		p.record(pastEntry{outcome: ledger.OutcomeSkipped, why: "rescheduled", upto: st.Last})
	}
	if st.Superseded || st.Spec != text || changed && st.Rescheduled.IsZero() || p.ledger != nil && !changed && !st.Last.Equal(p.last) {
		p.t.Fatalf("%s: a new definition: %+v, last %v", p.name, st, p.last)
	}
	p.ledger, p.state, p.now, p.hidden, p.last = l, st, s, hidden, st.Last
}

// ticksIn returns the ticks t with since < t ≤ until.
func ticksIn(s schedule.Schedule, since, until time.Time) (all []time.Time) {
	for t := s.Next(since); !t.After(until); t = s.Next(t) {
		all = append(all, t.UTC())
	}
	return all
}

func (p *pastJob) due(now time.Time) []time.Time { return ticksIn(p.now, p.last, now) }

func (p *pastJob) record(e pastEntry) {
	p.history = append(p.history, e)
	for len(p.history) > p.keep {
		for _, t := range append(p.history[0].ticks, p.history[0].upto) {
			if t.After(p.cut) {
				p.cut = t
			}
		}
		p.history = p.history[1:]
	}
}

// skipped records ticks. They extend the newest entry if that is of the ticks before, for the same reason.
func (p *pastJob) skipped(due []time.Time, why string) {
	if n := len(p.history) - 1; n >= 0 {
		if e := &p.history[n]; e.why == why && len(e.ticks) > 0 && e.ticks[len(e.ticks)-1].Equal(p.last) {
			e.ticks = append(e.ticks, due...)
			p.last = due[len(due)-1]
			return
		}
	}
	p.record(pastEntry{ticks: slices.Clone(due), outcome: ledger.OutcomeSkipped, why: why})
	p.last = due[len(due)-1]
}

// run claims a run and completes it.
func (p *pastJob) run(id ledger.RunID, cfg ledger.ClaimConfig) (outcome string) {
	ctx := p.t.Context()
	claim, err := p.ledger.Claim(ctx, id, p.state, cfg)
	p.must(err)
	outcome = ledger.OutcomeSucceeded
	if p.rnd.IntN(3) == 0 {
		outcome = ledger.OutcomeFailed
	}
	p.must(claim.Complete(ctx, outcome, "why"))
	return outcome
}

// ended returns the newest entry of a tick that the history has.
func (p *pastJob) ended(tick time.Time) (outcome string) {
	for _, e := range slices.Backward(p.history) {
		if slices.ContainsFunc(e.ticks, tick.Equal) {
			return e.outcome
		}
	}
	return ""
}

func (p *pastJob) step() {
	ctx := p.t.Context()
	time.Sleep(time.Duration(p.rnd.IntN(240)) * time.Second)
	st, err := p.ledger.Open(ctx, p.state)
	p.must(err)
	p.state = st
	due := p.due(st.Now)
	job := p.f.job(p.name)
	kind := []string{"run", "run", "run", "skip", "nothing", "trigger", "cancelled trigger", "rerun", "cancelled rerun", "pause", "define"}[p.rnd.IntN(11)]
	p.did[kind]++
	switch kind {
	case "run":
		if len(due) == 0 || st.Paused {
			return
		}
		i := p.rnd.IntN(len(due))
		var cfg ledger.ClaimConfig
		if i > 0 {
			cfg.Skipped = &ledger.Skip{First: due[0], Last: due[i-1], Count: i, Reason: "missed"}
			p.skipped(due[:i], "missed")
		}
		outcome := p.run(ledger.RunID{Tick: due[i]}, cfg)
		p.last = due[i]
		p.record(pastEntry{ticks: []time.Time{due[i]}, outcome: outcome})
	case "skip":
		if len(due) > 0 && !st.Paused {
			why := []string{"missed", "paused"}[p.rnd.IntN(2)]
			p.must(p.ledger.Skip(ctx, st, ledger.Skip{First: due[0], Last: due[len(due)-1], Count: len(due), Reason: why}))
			p.skipped(due, why)
		}
	case "trigger":
		id, err := job.Trigger(ctx)
		p.must(err)
		outcome := p.run(ledger.RunID(id), ledger.ClaimConfig{})
		p.record(pastEntry{outcome: outcome})
		if outcome != ledger.OutcomeSucceeded {
			p.must(job.Rerun(ctx, id))
			p.record(pastEntry{outcome: p.run(ledger.RunID(id), ledger.ClaimConfig{})})
		}
	case "cancelled trigger":
		id, err := job.Trigger(ctx)
		p.must(err)
		_, err = job.Cancel(ctx, id)
		p.must(err)
		p.history = append(p.history, pastEntry{outcome: ledger.OutcomeSkipped}) // an operator does not know KeepRuns
	case "rerun", "cancelled rerun":
		var failed []time.Time
		for k, e := range p.history {
			changed := slices.ContainsFunc(p.history[k:], func(later pastEntry) bool { return !later.upto.IsZero() })
			for i, t := range e.ticks {
				known := i == 0 || i == len(e.ticks)-1 || !changed && !p.hidden && p.now.Next(t.Add(-time.Millisecond)).Equal(t)
				if known && p.ended(t) != ledger.OutcomeSucceeded {
					failed = append(failed, t)
				}
			}
		}
		if len(failed) == 0 {
			return
		}
		id := singleton.RunID{Tick: failed[p.rnd.IntN(len(failed))]}
		p.must(job.Rerun(ctx, id))
		if kind == "rerun" {
			p.record(pastEntry{ticks: []time.Time{id.Tick}, outcome: p.run(ledger.RunID(id), ledger.ClaimConfig{})})
			return
		}
		_, err := job.Cancel(ctx, id)
		p.must(err)
		p.history = append(p.history, pastEntry{ticks: []time.Time{id.Tick}, outcome: ledger.OutcomeSkipped, why: "canceled"})
	case "pause":
		if st.Paused {
			p.must(job.Resume(ctx))
		} else {
			p.must(job.Pause(ctx))
		}
	case "define":
		hidden := p.rnd.IntN(4) == 0
		if hidden {
			p.did["define without a zone"]++
		}
		p.define([]time.Duration{time.Minute, 90 * time.Second, 7 * time.Second}[p.rnd.IntN(3)], hidden)
	}
}

// judged counts the ticks from since on by what Verify has to find.
func (p *pastJob) judged(since, now time.Time) map[string]int {
	const ms = time.Millisecond
	counts, from := map[string]int{}, p.begun.Add(ms)
	if p.changed.After(p.begun) && p.cut.Before(p.changed) {
		from = p.changed.Add(ms)
	}
	switch {
	case since.IsZero():
		since = from
	case !since.After(p.begun):
		since = p.begun.Add(ms)
	}
	switch {
	case p.hidden:
		from = now
	case p.cut.Add(ms).After(from):
		from = p.cut.Add(ms)
	}
	if !since.Before(now) {
		return counts
	}
	if since.Before(from) {
		counts["unknown part"]++
	}
	single := map[int64]bool{} // ticks with an entry of their own
	for _, e := range p.history {
		if len(e.ticks) == 1 && !e.ticks[0].Before(since) && e.ticks[0].Before(now) {
			single[e.ticks[0].UnixMilli()] = true
		}
	}
	for at := range single {
		if t := time.UnixMilli(at); t.Before(from) {
			counts[p.ended(t)]++
		}
	}
	for _, e := range p.history {
		if n := len(e.ticks); n > 1 && !e.ticks[n-1].Before(since) && e.ticks[n-1].Before(from) {
			for at := range single {
				if t := time.UnixMilli(at); !t.Before(e.ticks[0]) && !t.After(e.ticks[len(e.ticks)-1]) {
					n--
				}
			}
			counts[e.outcome] += n
		}
	}
	if from.Before(since) {
		from = since
	}
	for _, t := range ticksIn(p.now, from.Add(-ms), now.Add(-ms)) {
		outcome := p.ended(t)
		switch {
		case outcome != "":
			counts[outcome]++
		case t.After(p.last) && !p.state.Paused && now.Sub(t) < 10*time.Second:
			counts["pending"]++
		default:
			counts["missing"]++
		}
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts
}

// Verify agrees with an independent count in a thousand random histories: of runs that fail or are
// skipped, triggered, run again or canceled, with pauses and changes of the schedule, with entries that
// were dropped, and with schedules that cannot be read because the data of their zone is missing.
// Mutants: the time of dropped entries begins at the oldest one; a triggered run is a tick; of a tick, an
// older entry counts; skipped ticks of that time are not judged.
func TestFault113_VerifyAgreesWithACount(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.job("any") // makes the client
		did := map[string]int{}
		unknown := 0
		histories := 1000
		if testing.Short() {
			histories = 100
		}
		for i := range histories {
			p := &pastJob{t: t, f: f, rnd: rand.New(rand.NewPCG(113, uint64(i))), name: fmt.Sprint("job-", i), did: did}
			p.keep = 1 + p.rnd.IntN(12)
			p.define(time.Minute, false)
			for range 4 + p.rnd.IntN(14) {
				p.step()
			}
			st, err := p.ledger.Status(t.Context())
			p.must(err)
			p.state.Paused = st.Paused
			for _, since := range []time.Time{{}, p.begun.Add(time.Duration(p.rnd.Int64N(int64(st.Now.Sub(p.begun)))))} {
				v, err := f.job(p.name).Verify(t.Context(), since, time.Time{})
				if err != nil && !errors.Is(err, singleton.ErrNothingKept) {
					t.Fatal(err)
				}
				want := p.judged(since, st.Now)
				got := map[string]int{}
				for kind, n := range map[string]int{"pending": len(v.Pending), ledger.OutcomeSucceeded: v.Succeeded, "unknown part": len(v.Unknown)} {
					if n > 0 {
						got[kind] = n
					}
				}
				for _, x := range v.Findings {
					got[x.Kind] += max(1, x.Count)
				}
				unknown += len(v.Unknown)
				if err != nil {
					delete(want, "unknown part") // with no tick in it
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("history %d since %v: Verify counts %v, %v, want %v\n%+v\nlast %v, cut %v, of %d entries: %+v", i, since, got, err, want, v, p.last, p.cut, p.keep, p.history)
				}
			}
		}
		t.Logf("steps: %v; %d parts were unknown", did, unknown)
	})
}
