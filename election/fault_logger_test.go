package election_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A logger blocks forever, takes 100 ms for each line, or panics. The leader is renewed, its loss
// ends the work in time, another replica leads, and Run returns.
//
// Caught mutant: the elector calls the logger itself.
func TestFault63_LoggerThatFails(t *testing.T) {
	t.Parallel()
	for name, log := range testenv.BadLoggers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				logger := log(e.Env)
				replica := func(identity string) *replica {
					cfg := quick("")
					cfg.Logger = logger
					return e.replica(e.ClientWith(e.Direct(), lockcore.Config{Identity: identity, Logger: logger}), cfg)
				}
				a, b := replica("a"), replica("b")
				e.queueUp(a, b)
				e.Pass(20 * leaseDuration)
				if _, n := a.term(); n != 1 || !a.le.IsLeader() {
					t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
				}
				lost := e.Clock()
				must(e, e.Raw.Del(e.Context(), key("lock")).Err())
				<-a.ctx.Done()
				if took := e.Clock() - lost; took > renewDeadline {
					t.Errorf("the work ended %v after the loss", took)
				}
				b.leads(1)
				if took := e.Clock() - lost; took > leaseDuration {
					t.Errorf("another replica leads %v after the loss", took)
				}
				began := e.Clock()
				_, _ = a.le.Ready(), a.le.Check(0)
				must(e, b.le.Resign(e.Context()))
				b.stop()
				a.stop()
				if took := e.Clock() - began; took > 5*time.Second { // Run waits a second for its lines
					t.Errorf("a resignation and the ends of Run took %v", took)
				}
			})
		})
	}
}

// Twenty leaders of one Client lose their leases at once, and the logger takes 100 ms for each
// line. The work of all of them ends in time.
func TestFault63_ASlowLoggerDelaysNoLoss(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		logger := testenv.BadLoggers()["slow"](e.Env)
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Logger: logger})
		var mu sync.Mutex
		var ends []time.Duration
		var stops []func()
		for i := range 20 {
			le, ctx, stop := e.leader(c, fmt.Sprint("board-", i), logger)
			e.Until("it leads", le.IsLeader)
			stops = append(stops, stop)
			go func() {
				<-(<-ctx).Done()
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, e.Clock())
			}()
		}
		e.Pass(leaseDuration)
		cut := e.Clock()
		faults.Partition()
		e.Pass(leaseDuration)
		mu.Lock()
		defer mu.Unlock()
		if len(ends) != 20 || slices.Max(ends)-cut > leaseDuration {
			t.Errorf("%d contexts are done, %v after the cut", len(ends), ends)
		}
		faults.Heal()
		for _, stop := range stops {
			stop()
		}
	})
}

// leader runs an elector. The channel delivers the first context of its work.
func (e *env) leader(c *lockcore.Client, name string, logger logr.Logger) (le *election.LeaderElector, work <-chan context.Context, stop func()) {
	e.Helper()
	contexts := make(chan context.Context, 1)
	cfg := quick("")
	cfg.Logger = logger
	le, err := election.NewLeaderElector(c, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			select {
			case contexts <- ctx:
			default:
			}
			<-ctx.Done()
		},
		OnStoppedLeading: func() {},
	}, cfg)
	must(e, err)
	ctx, cancel := context.WithCancel(e.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = le.Run(ctx)
	}()
	return le, contexts, func() {
		cancel()
		<-done
	}
}
