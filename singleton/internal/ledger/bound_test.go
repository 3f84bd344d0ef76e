package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Every call returns within its documented bound in every state of the network.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, everyCall)
}

func everyCall(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	e.Helper()
	const lease = 3 * time.Second
	const two3 = 2 * lease / 3
	bg := context.Background()
	open := func(job string) (*ledger.Ledger, ledger.State) {
		l, err := ledger.New(c, job, ledger.Config{Lease: testenv.TTL(lease)})
		testenv.Must(e, err)
		st, err := l.Open(e.Context(), ledger.State{})
		testenv.Must(e, err)
		return l, st
	}
	l, st := open("draw")
	// A Claim is not for concurrent use, so each call has one of its own.
	var claims []*ledger.Claim
	var due []func()
	for _, job := range []string{"look", "complete", "record", "retry", "abandon"} {
		l, st := open(job)
		due = append(due, func() {
			r, err := l.Claim(e.Context(), st.Last.Add(time.Second).Truncate(time.Second), st, ledger.ClaimConfig{})
			testenv.Must(e, err)
			claims = append(claims, r)
		})
	}
	e.Pass(2 * time.Second)
	st, err := l.Open(e.Context(), st)
	testenv.Must(e, err)
	for _, claim := range due {
		claim()
	}
	looks, completes, records, retries, abandons := claims[0], claims[1], claims[2], claims[3], claims[4]
	add("Ledger.Open", two3, func() { _, _ = l.Open(bg, st) })
	add("Ledger.Status", two3, func() { _, _ = l.Status(bg) })
	add("Ledger.Pause", two3, func() { _ = l.Pause(bg) })
	add("Ledger.Resume", two3, func() { _ = l.Resume(bg) })
	add("Ledger.Trigger", two3, func() { _, _ = l.Trigger(bg) })
	add("Ledger.Rerun", two3, func() { _ = l.Rerun(bg, st.Last, false) })
	add("Ledger.Acts", two3, func() { _, _ = l.Acts(bg, 10) })
	add("Ledger.Cancel", two3, func() { _, _ = l.Cancel(bg, st.Last) })
	add("Run.Look", two3, func() { _ = looks.Look(bg) })
	add("Ledger.Runs", two3, func() { _, _ = l.Runs(bg, 10) })
	add("Ledger.Now", two3, func() { _, _, _ = l.Now(bg) })
	add("Ledger.Leave", two3, func() { _ = l.Leave(bg, st) })
	add("Ledger.Skip", two3, func() {
		_ = l.Skip(bg, st, ledger.Skip{First: st.Last.Add(time.Second), Last: st.Last.Add(time.Second), Count: 1, Reason: "missed"})
	})
	add("Ledger.Claim", two3, func() {
		_, _ = l.Claim(bg, st.Last.Add(time.Hour).Truncate(time.Second), st, ledger.ClaimConfig{})
	})
	add("Run.Complete with 1 s", time.Second, e.Within(func(ctx context.Context) { _ = completes.Complete(ctx, ledger.OutcomeSucceeded, "") }))
	add("Run.Record", time.Second, func() { _ = records.Record(bg) })
	add("Run.Retry with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = retries.Retry(ctx) }))
	add("Run.Abandon", lease, func() { _ = abandons.Abandon(bg, true) })
}
