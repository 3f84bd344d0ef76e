package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// acts returns the acts of operators on the job, newest first, without their times.
func (e *env) acts() []string {
	e.Helper()
	acts, err := e.job().Actions(e.Context(), 1000)
	testenv.Must(e, err)
	var all []string
	for i, a := range acts {
		if a.At.IsZero() || i > 0 && a.At.After(acts[i-1].At) {
			e.Errorf("acts are not in order: %+v", acts)
		}
		text := fmt.Sprintf("%s by %s: %s", a.Verb, a.By, a.Reason)
		if !a.Tick.IsZero() {
			text += " at " + a.Name()
		}
		all = append(all, text)
	}
	return all
}

// Each change that an operator makes is recorded, with who made it and why, and lives as long as the
// job. Repeated calls that change nothing are not.
// Mutants: a repeated call is recorded; the list has no TTL, or keeps one while the job is paused.
func TestActsAreRecorded(t *testing.T) {
	onBoth(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{Lease: testenv.TTL(time.Minute)})
		run, _ := e.claimed(l)
		ann := e.operator()
		by := func(what string, run ledger.RunID) string {
			text := what + " by ann@host: wrong data"
			if !run.Tick.IsZero() {
				text += " at " + run.Name()
			}
			return text
		}
		var want []string
		// endless removes the TTL, so that the next act must set it again.
		endless := func() {
			e.Helper()
			testenv.Must(e, e.Raw.Persist(e.Context(), e.key("job/draw", "acts")).Err())
		}
		check := func(what string, endless bool, acts ...string) {
			e.Helper()
			want = append(acts, want...)
			if got := e.acts(); !slices.Equal(got, want) {
				e.Errorf("%s: acts are\n%q, want\n%q", what, got, want)
			}
			acted, job := e.PTTL(e.key("job/draw", "acts")), e.PTTL(e.key("job/draw", "job"))
			if endless != (acted < 0) || !endless && (acted < job-time.Minute || acted > job+time.Minute) {
				e.Errorf("%s: acts live for %v, the job for %v", what, acted, job)
			}
		}
		if acts := e.acts(); len(acts) != 0 {
			e.Errorf("acts are %q", acts)
		}
		testenv.Must(e, ann.Resume(e.Context()))
		if n := e.Raw.Exists(e.Context(), e.key("job/draw", "acts")).Val(); n != 0 {
			e.Error("a resume of a job that runs is recorded")
		}
		testenv.Must(e, ann.Pause(e.Context()))
		st := e.opened(l)
		if acts, err := e.job().Actions(e.Context(), 1); err != nil || !acts[0].At.Equal(st.PausedSince) {
			e.Errorf("paused since %v, %+v, %v", st.PausedSince, acts, err)
		}
		check("pause", true, by("pause", ledger.RunID{}))
		testenv.Must(e, l.Pause(e.Context()))
		check("pause again", true)
		testenv.Must(e, ann.Resume(e.Context()))
		if acts, err := e.job().Actions(e.Context(), 1); err != nil || !acts[0].At.Equal(e.opened(l).Resumed) {
			e.Errorf("resumed is %+v, %v", acts, err)
		}
		check("resume", false, by("resume", ledger.RunID{}))
		endless()
		e.canceled(run.RunID, run.RunID)
		e.canceled(run.RunID, run.RunID)
		check("cancel", false, by("cancel", run.RunID))
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, "stopped"))
		endless()
		testenv.Must(e, ann.Rerun(e.Context(), run.RunID, false))
		testenv.MustIs(e, ann.Rerun(e.Context(), run.RunID, false), ledger.ErrNotEnded)
		check("rerun", false, by("rerun", run.RunID))
		endless()
		tick, err := ann.Trigger(e.Context())
		testenv.Must(e, err)
		check("trigger", false, by("trigger", tick))
		e.canceled(tick, tick)
		check("cancel of a run that nobody holds", false, by("cancel", tick))
	})
}

// The newest hundred acts are kept.
func TestActsAreBounded(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.claimed(l)
		for range 51 {
			testenv.Must(e, l.Pause(e.Context()))
			testenv.Must(e, l.Resume(e.Context()))
		}
		if acts := e.acts(); len(acts) != 100 || acts[0] != "resume by a: " {
			e.Errorf("%d acts: %q", len(acts), acts)
		}
		if acts, err := e.job().Actions(e.Context(), 2); err != nil || len(acts) != 2 {
			e.Errorf("acts are %+v, %v", acts, err)
		}
		if _, err := e.job().Actions(e.Context(), 0); err == nil {
			e.Error("no error for 0 acts")
		}
	})
}
