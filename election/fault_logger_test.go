package election_test

import (
	"testing"
	"time"

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
