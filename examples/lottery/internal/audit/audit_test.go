package audit_test

import (
	"slices"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// Missing noons that the job has skipped are reported with the reason.
func TestSkippedNoonsAreExplained(t *testing.T) {
	t.Parallel()
	ledger := standing{runs: []singleton.Entry{
		{Tick: at(5), Attempt: 1, Token: 1, Holder: "me", Outcome: singleton.OutcomeSucceeded},
		{Tick: at(2), Last: at(4), Count: 3, Outcome: singleton.OutcomeSkipped, Error: "missed"},
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
