package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// A resource has seen a token of a clock that was ahead, and the counter is lost. One run
// is refused, once, and continues with a greater token. No other run is refused, on any
// replica, while the counter is kept, and it is kept until the clock has caught up.
// Mutants: the run keeps its token; the last attempt leaves the counter; the counter ends
// after a week.
func TestFault81_ClassD_TheResourceHasSeenATokenOfTheFuture(t *testing.T) {
	for _, c := range []struct {
		name     string
		ahead    time.Duration
		cfg      singleton.JobConfig
		failures int // ticks
	}{
		{"years", 14 * 365 * 24 * time.Hour, singleton.JobConfig{}, 0},
		{"seconds", 8 * time.Second, singleton.JobConfig{}, 0},
		{"one attempt", 14 * 365 * 24 * time.Hour, singleton.JobConfig{MaxAttempts: 1}, 1},
		{"overlapping", 14 * 365 * 24 * time.Hour, singleton.JobConfig{Overlap: singleton.OverlapAllow}, 0},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			resource := &gate{ahead: c.ahead}
			c.cfg.CatchUp = singleton.CatchUpAll
			regs := map[string]*prometheus.Registry{}
			for _, name := range []string{"a", "b", "c"} {
				regs[name] = prometheus.NewRegistry()
				r := f.replica(name, singleton.Config{Registerer: regs[name]})
				r.add("draw", "@every 10m", func(_ context.Context, run singleton.Run) error {
					return resource.admit(run.Token, run.Tick)
				}, c.cfg)
				r.run()
			}
			f.Pass(21 * time.Minute)
			if n := resource.refusals(); n != 1 {
				t.Errorf("%s: %d refusals, want 1", c.name, n)
			}
			failed := 0
			for _, run := range f.runs("draw") {
				if run.Outcome != singleton.OutcomeSucceeded {
					failed++
				}
			}
			if failed != c.failures {
				t.Errorf("%s: %d ticks did not succeed, want %d", c.name, failed, c.failures)
			}
			raised := 0.0
			for _, reg := range regs {
				n, _ := metric(t, reg, "noonlock_job_tokens_raised_total", "name", "draw")
				raised += n
			}
			if logged := f.log.Count("token raised"); logged != 1 || raised != 1 {
				t.Errorf("%s: logged %d times, counted %v times, want once", c.name, logged, raised)
			}
			// No replica runs for more than a week, and the counter still exists.
			if ttl := f.Raw.PTTL(t.Context(), f.key("draw", "fence")).Val(); ttl < min(c.ahead, 7*24*time.Hour) || c.ahead > 7*24*time.Hour && ttl < c.ahead {
				t.Errorf("%s: the counter is kept for %v", c.name, ttl)
			}
		})
	}
}

// Two servers with one resource: each run raises its token once and no more.
func TestFault81_TwoServersWithOneResource(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		attempts := 0
		r.add("draw", "@every 1h", func(_ context.Context, run singleton.Run) error {
			attempts++
			return &sqlonce.StaleTokenError{Job: "draw", Tick: run.Tick, Given: run.Token, Seen: run.Token + 1e6}
		}, singleton.JobConfig{MaxAttempts: 4})
		r.run()
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeFailed || attempts != 4 {
			t.Errorf("after %d attempts the record is %+v", attempts, record)
		}
		if n := f.log.Count("token raised"); n != 1 {
			t.Errorf("the token was raised %d times, want once", n)
		}
	})
}

// A run that is refused while its replica shuts down raises its token, too, so the next
// replica is not refused.
func TestFault81_ARefusalDuringAShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		resource := &gate{ahead: 14 * 365 * 24 * time.Hour}
		all := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			all[name] = f.replica(name, singleton.Config{})
			all[name].add("draw", "@every 1h", func(ctx context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					<-ctx.Done()
				}
				return resource.admit(run.Token, run.Tick)
			}, singleton.JobConfig{})
			all[name].run()
		}
		all[f.begun("draw", 1)[0].replica].stop()
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeSucceeded || record.Attempt != 2 {
			t.Errorf("the record is %+v", record)
		}
		if n := resource.refusals(); n != 1 {
			t.Errorf("%d refusals, want 1", n)
		}
	})
}

// A token that cannot be exceeded is logged, and does not end the job.
func TestFault81_ATokenThatNoOtherIsAbove(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 1h", func(_ context.Context, run singleton.Run) error {
			return &sqlonce.StaleTokenError{Job: "draw", Tick: run.Tick, Given: run.Token, Seen: 1<<63 - 1}
		}, singleton.JobConfig{MaxAttempts: 2})
		r.run()
		if record := f.recorded("draw", 1)[0]; record.Outcome != singleton.OutcomeFailed {
			t.Errorf("the record is %+v", record)
		}
		if n := f.log.Count("failed to raise token"); n == 0 {
			t.Error("nothing is logged")
		}
	})
}

// The same for a Once: the next call's token is greater.
func TestFault81_AOnceIsRefusedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		resource := &gate{ahead: 14 * 365 * 24 * time.Hour}
		o := f.once(f.Client("a"), singleton.OnceConfig{})
		work := func(_ context.Context, token uint64) error { return resource.admit(token, time.UnixMilli(1)) }
		if err := o.Do(t.Context(), work); !errors.Is(err, singleton.ErrOnceFailed) || !errors.Is(err, sqlonce.ErrStaleToken) {
			t.Errorf("the first call: %v", err)
		}
		if err := o.Do(t.Context(), work); err != nil {
			t.Errorf("the second call: %v", err)
		}
	})
}
