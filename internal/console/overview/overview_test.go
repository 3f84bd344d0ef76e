package overview_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// Each calls a function for all things, for only some at a time. The first error ends the other calls.
func TestEach(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c", "d", "e"}
	got := make([]string, len(all))
	var now, most atomic.Int64
	err := overview.Each(t.Context(), 2, all, func(_ context.Context, i int, one string) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		got[i] = one
		return nil
	})
	if err != nil || !slices.Equal(got, all) || most.Load() > 2 {
		t.Errorf("%q, %v, %d at a time", got, err, most.Load())
	}
	broken := errors.New("broken")
	calls := 0
	err = overview.Each(t.Context(), 1, all, func(context.Context, int, string) error {
		calls++
		return broken
	})
	if calls != 1 || !errors.Is(err, broken) {
		t.Errorf("%d calls after an error: %v", calls, err)
	}
	err = overview.Each(t.Context(), 2, all[:2], func(ctx context.Context, i int, _ string) error {
		if i == 0 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, broken) {
		t.Errorf("while another call waits: %v", err)
	}
}

// Choose filters and sorts, by default of the page what needs attention first. Jobs without a Mark are in no
// state, and an unknown state chooses all.
func TestChoose(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	job := func(st singleton.Status) overview.Mark {
		st.Now = now
		return overview.MarkOf(st)
	}
	running := []singleton.OpenRun{{}, {Running: true}}
	marks := map[string]overview.Mark{
		"a": job(singleton.Status{Outcome: singleton.OutcomeSucceeded, Next: now.Add(9), Replicas: 1}),
		"b": job(singleton.Status{Next: now.Add(8)}),
		"c": job(singleton.Status{Next: now.Add(-time.Hour), Replicas: 1, TTL: time.Minute, Open: running}),
		"d": job(singleton.Status{Next: now.Add(-15*time.Second - 1), Replicas: 1, TTL: 10 * time.Second}),
		"e": job(singleton.Status{Outcome: singleton.OutcomeUnknown, Next: now.Add(5), Replicas: 1, Open: running}),
		"f": job(singleton.Status{Outcome: singleton.OutcomeFailed, Paused: true, Next: now.Add(-2 * time.Hour)}),
		"g": job(singleton.Status{Outcome: singleton.OutcomeSkipped, Replicas: 1, Open: running[:1]}),
		"h": job(singleton.Status{Next: now.Add(-15 * time.Second), Replicas: 1, TTL: 10 * time.Second}),
		"i": job(singleton.Status{Next: now.Add(-time.Hour), Replicas: 1, TTL: time.Hour}),
	}
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "new"}
	for _, c := range []struct{ state, order, want string }{
		{"", "", "a b c d e f g h i new"},
		{"unheard", "unheard", "a b c d e f g h i new"},
		{"failing", "", "e f"},
		{"overdue", "", "d"},
		{"running", "", "c e"},
		{"alone", "", "b f"},
		{"paused", "name", "f"},
		{"", "attention", "e f d c b a g h i new"},
		{"running", "attention", "e c"},
		{"", "next", "f c i d h e b a g new"},
	} {
		if got := overview.Choose(names, marks, c.state, c.order); strings.Join(got, " ") != c.want {
			t.Errorf("state %q, order %q: %q, want %q", c.state, c.order, got, c.want)
		}
	}
	want := map[string]int{"failing": 2, "overdue": 1, "running": 2, "alone": 2, "paused": 1}
	if got := overview.Count(marks); !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

// A name without anything is read without an error, and says what it is. Actions on it are refused.
func TestNothing(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		client := e.Client("operator")
		for k, state := range map[overview.Kind]string{overview.Elections: "no leader", overview.Locks: "free"} {
			seen, err := k.Read(e.Context(), client, "none")
			testenv.Must(e, err)
			if got := seen.Row()[0].Text; seen.Exists() || got != state {
				e.Errorf("%s: %s, exists %t", k, got, seen.Exists())
			}
		}
		seen, err := overview.Jobs.Read(e.Context(), client, "none")
		testenv.Must(e, err)
		if seen.Exists() {
			e.Errorf("a job: %+v", seen)
		}
		_, err = overview.Job(e.Context(), client, "none", 5)
		testenv.MustIs(e, err, singleton.ErrNoLedger)
		for verb, want := range map[string]error{
			"pause": singleton.ErrNoLedger, "resume": singleton.ErrNoLedger, "trigger": singleton.ErrNoLedger, "cancel": singleton.ErrNoLedger,
			"rerun": singleton.ErrNoRun, "resign": election.ErrNoLeader,
		} {
			_, err := overview.Action{Verb: verb, Name: "none"}.Do(e.Context(), client)
			testenv.MustIs(e, err, want)
		}
		if len(overview.Verbs) != 6 {
			e.Errorf("verbs %v", overview.Verbs)
		}
	})
}
