package singleton_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// The server is away from the middle of a run on. The ledger has how long the work took, and the ticks that
// were due after it as missed, also if the lease had ended meanwhile, if the work failed, and if an operator
// requests a run as soon as the server is back. If another attempt follows, the run has not ended.
// Mutants: a run or an attempt ends when the server records it; a triggered run continues the hold.
func TestFault72_AnOutageIsNoWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl    time.Duration
		err    error
		config singleton.JobConfig
		reason string
	}{
		"within the TTL": {time.Minute, nil, singleton.JobConfig{}, "missed"},
		"over the TTL":   {2 * time.Second, nil, singleton.JobConfig{}, "missed"},
		"failed":         {time.Minute, errBroken, singleton.JobConfig{MaxAttempts: 1}, "missed"},
		"after attempts": {time.Minute, errBroken, singleton.JobConfig{Retry: time.Millisecond, HandOverAfter: -1}, "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				reg := prometheus.NewRegistry()
				var begun atomic.Int64
				r := f.replica("a", singleton.Config{TTL: c.ttl}, reg)
				r.add("draw", "@every 1s", func(ctx context.Context, run singleton.Run) error {
					if begun.Add(1) == 3 {
						f.Bubble.Stop()
						time.AfterFunc(7100*time.Millisecond, func() { testenv.Must(f, f.Bubble.Start(false)) })
					}
					err := sleep(300*time.Millisecond)(ctx, run)
					if begun.Load() == 3 {
						err = errors.Join(err, c.err)
					}
					return err
				}, c.config)
				r.run()
				f.Until("the server is away", func() bool { return begun.Load() == 3 })
				f.Until("the server is back", func() bool { return f.Raw.Ping(t.Context()).Err() == nil })
				if _, err := f.job("draw").Trigger(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.Pass(5 * time.Second)
				skipped := 0
				for _, e := range f.runs("draw") {
					for _, a := range e.Attempts {
						if took := a.End.Sub(a.Start); took < 290*time.Millisecond || took > 310*time.Millisecond {
							t.Errorf("an attempt took %v: %+v", took, e)
						}
					}
					if skipped += e.Count; e.Count > 0 && e.Error != c.reason {
						t.Errorf("skipped: %+v", e)
					}
				}
				if skipped < 5 || skipped > 8 {
					t.Errorf("%d ticks were skipped", skipped)
				}
				if n, sum := metric(t, reg, "noonlock_job_attempt_duration_seconds"); sum < 0.29*n || sum > 0.31*n {
					t.Errorf("%v attempts took %v s", n, sum)
				}
			})
		})
	}
}
