package replica

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A step that is refused again and again in the same way follows after growing pauses, although messages
// arrive all the time. Other refusals have no pause.
// Mutants: no pause; messages cut it short; each refusal has one; the pauses never begin again.
func TestFault126_RefusalsInARow(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		accepted    int // one of so many steps; 0: none
		changes     bool
		least, most int
	}{{0, false, 20, 60}, {0, true, 4000, 11_000}, {2, false, 4000, 11_000}, {3, false, 300, 1500}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			l, steps := newLoop(retry.NewSignal(), &readiness.State{}, logr.Discard(), new(readiness.Reports), true), 0
			go func() {
				for retry.Sleep(ctx, time.Millisecond, nil) {
					l.wake.Send()
				}
			}()
			_ = l.run(ctx, func() (time.Duration, bool, error) {
				time.Sleep(time.Millisecond)
				steps++
				refused := &ledger.ClaimError{Status: ledger.ClaimEarlier}
				switch {
				case row.accepted > 0 && steps%row.accepted == 0:
					return time.Minute, false, nil
				case row.changes:
					refused.Last = time.Now()
				}
				return 0, false, refused
			})
			if steps < row.least || steps > row.most {
				t.Errorf("%+v: %d steps in 10 s", row, steps)
			}
		})
	}
}

// Messages during an outage do not delay the first step after it.
// Mutant: each message makes the next pause longer.
func TestFault123_MessagesDuringAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l, begun := newLoop(retry.NewSignal(), &readiness.State{}, logr.Discard(), new(readiness.Reports), true), time.Now()
		go func() {
			for range 90 {
				time.Sleep(time.Millisecond)
				l.wake.Send()
			}
		}()
		_ = l.run(ctx, func() (time.Duration, bool, error) {
			if time.Since(begun) < 100*time.Millisecond {
				return 0, false, lockcore.ErrUnknown
			}
			cancel()
			return 0, false, nil
		})
		if took := time.Since(begun); took > 200*time.Millisecond {
			t.Errorf("the step after the outage came after %v", took)
		}
	})
}
