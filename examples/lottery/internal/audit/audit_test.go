package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// Missing noons that the job has skipped are reported with the reason.
func TestSkippedNoonsAreExplained(t *testing.T) {
	t.Parallel()
	ledger := standing{runs: []singleton.Entry{
		{RunID: singleton.RunID{Tick: at(5)}, Attempt: 1, Token: 1, Holder: "me", Outcome: singleton.OutcomeSucceeded},
		{RunID: singleton.RunID{Tick: at(2)}, Last: at(4), Count: 3, Outcome: singleton.OutcomeSkipped, Error: "missed"},
	}}
	want := store.Expected{Job: noon.Job, Winners: 1, Since: at(0), Until: at(7)}
	for minute := range 7 {
		want.Ticks = append(want.Ticks, at(float64(minute)))
	}
	report, err := audit.Check(t.Context(), drawn(t, 5), ledger, want)
	if err != nil {
		t.Fatal(err)
	}
	var skipped, unexplained []int
	for _, f := range report.Findings {
		minute := int(f.Tick.Sub(base).Minutes())
		switch {
		case f.Kind == store.Missing && f.Detail == "there is no draw; the ledger in Redis records it as skipped: missed":
			skipped = append(skipped, minute)
		case f.Kind == store.Missing && f.Detail == "there is no draw":
			unexplained = append(unexplained, minute)
		}
	}
	if !slices.Equal(skipped, []int{2, 3, 4}) || !slices.Equal(unexplained, []int{0, 1, 6}) {
		t.Errorf("skipped %v, missing %v in %v", skipped, unexplained, report.Findings)
	}
}

// A noon that was recorded as unknown and then run again is in order: the newest entry counts, and
// its first attempt may have found the draw of a later attempt of the former run.
func TestReruns(t *testing.T) {
	t.Parallel()
	ledger := standing{runs: []singleton.Entry{
		{RunID: singleton.RunID{Tick: at(1)}, Attempt: 1, Token: 9, Holder: "other", Outcome: singleton.OutcomeSucceeded},
		{RunID: singleton.RunID{Tick: at(1)}, Attempt: 2, Token: 1, Holder: "me", Outcome: singleton.OutcomeUnknown},
	}}
	report, err := audit.Check(t.Context(), drawnBy(t, 2, 1), ledger, store.Expected{Job: noon.Job, Winners: 1, Since: at(1), Until: at(2), Ticks: []time.Time{at(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if report.Recorded != 1 || slices.ContainsFunc(report.Findings, func(f store.Finding) bool { return f.Kind == store.Unledgered || f.Kind == store.Unrecorded }) {
		t.Errorf("the report is %+v", report)
	}
}
