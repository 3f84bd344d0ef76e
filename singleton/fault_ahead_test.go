package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// A gate is a resource that refuses tokens smaller than the greatest it has seen.
type gate struct {
	mu      sync.Mutex
	ahead   time.Duration // of the token that it has seen before the first call
	seen    uint64
	refused int
}

func (g *gate) admit(token uint64, tick time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen == 0 {
		g.seen = uint64(time.Now().Add(g.ahead).UnixMicro())
	}
	if token < g.seen {
		g.refused++
		return fmt.Errorf("draw: %w", &sqlonce.StaleTokenError{Job: "draw", Tick: tick, Given: token, Seen: g.seen})
	}
	g.seen = token
	return nil
}

func (g *gate) refusals() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// A resource has seen a token of a clock that was ahead, and the counter is lost. It refuses each run
// until an operator sets the counter to the token that it has seen, and no run after that.
// Mutants: a claim ignores the counter; the counter ends after a week.
func TestFault81_ClassD_TheResourceHasSeenATokenOfTheFuture(t *testing.T) {
	const ahead = 14 * 365 * 24 * time.Hour
	inBubble(t, func(t *testing.T, f *fleet) {
		resource := &gate{ahead: ahead}
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{})
			r.add("draw", "@every 10m", func(_ context.Context, run singleton.Run) error {
				return resource.admit(run.Token, run.Tick)
			}, singleton.JobConfig{MaxAttempts: 1})
			r.run()
		}
		if run := f.recorded("draw", 1)[0]; run.Outcome != singleton.OutcomeFailed {
			t.Errorf("the first run is %+v", run)
		}
		if err := f.Raw.Set(t.Context(), "noonlock:{job/draw}:fence", resource.seen, 0).Err(); err != nil {
			t.Fatal(err)
		}
		f.Pass(21 * time.Minute)
		runs := f.runs("draw")
		succeeded := 0
		for _, run := range runs {
			if run.Outcome == singleton.OutcomeSucceeded {
				succeeded++
			}
		}
		if n := resource.refusals(); n != 1 || succeeded != len(runs)-1 || succeeded < 2 {
			t.Errorf("%d refusals, %d of %d runs succeeded, want 1 refusal and at least 2 successes", n, succeeded, len(runs))
		}
		// No replica runs for more than a week, and the counter still exists.
		if ttl := f.Raw.PTTL(t.Context(), f.key("draw", "fence")).Val(); ttl < ahead {
			t.Errorf("the counter is kept for %v", ttl)
		}
	})
}
