package several

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// A silence says nothing about requests that have more time, unless more time would not have
// helped. A trial with little time proves nothing about the others, either.
func TestCircuitOfADistantServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := circuit{watch: Watchers{Health: func(int, error) {}}, pauses: retry.Growing(100*time.Millisecond, 100*time.Millisecond, 1, 0)}
		silent := func(within time.Duration) { c.leave(wire.NotSent(wire.NoAnswer(within)), within) }
		enters := func(when string, within time.Duration, want bool) {
			t.Helper()
			if got := c.enter(within); got != want {
				t.Errorf("%s: a request with %v is sent: %v", when, within, got)
			}
		}
		enters("closed", time.Millisecond, true)
		silent(time.Second)
		enters("after a silence of 1 s", time.Second, false)
		enters("after a silence of 1 s", 1100*time.Millisecond, false) // all clocks differ a little
		enters("after a silence of 1 s", 3*time.Second, true)
		silent(3 * time.Second)
		enters("after a silence of 3 s", 3*time.Second, false)
		enters("after a silence of 3 s", 6*time.Second, true)
		time.Sleep(100 * time.Millisecond)
		enters("after the pause", time.Second, true)
		enters("during the trial", time.Second, false)
		silent(time.Second)
		enters("after the trial", time.Second, false)
		enters("after the trial", 3*time.Second, true)
		c.leave(nil, 3*time.Second)
		enters("after an answer", time.Millisecond, true)
		c.leave(wire.NotSent(errors.New("connection refused")), time.Millisecond)
		enters("after a dial was refused", time.Hour, false)
		time.Sleep(100 * time.Millisecond)
		enters("after the pause", time.Millisecond, true)
	})
}
