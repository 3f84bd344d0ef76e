package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Check fails when a run continues past its drain or its lease. The run is not begun again here meanwhile.
func TestCheckFindsWorkThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	const tolerance, drain = 5 * time.Second, 3 * time.Second
	for name, c := range map[string]struct {
		lost  bool
		ends  time.Duration // the work must have stopped after it
		cause error
	}{
		"a run past its drain": {ends: drain, cause: singleton.ErrStopping},
		"a run past its lease": {lost: true, ends: 10 * time.Second, cause: lockcore.ErrLeaseExpired},
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			client, faults := f.Linked("a")
			began, leave := make(chan struct{}, 2), make(chan struct{})
			r, err := singleton.NewRunner(client, singleton.Config{Drain: drain})
			testenv.Must(t, err)
			testenv.Must(t, r.Add("draw", "@every 1h", func(context.Context, singleton.Run) error {
				began <- struct{}{}
				<-leave
				return nil
			}, singleton.JobConfig{}))
			checks := func(when string, want error) {
				t.Helper()
				if err := r.Check(tolerance); (err == nil) != (want == nil) || want != nil && (!errors.Is(err, singleton.ErrOverrun) || !errors.Is(err, want)) {
					t.Errorf("%s, %s: %v, want %v", name, when, err, want)
				}
			}
			checks("before Run", nil)
			run := f.run(r.Run)
			receive(f, began, "the work")
			f.Pass(10 * time.Minute)
			checks("at work", nil)
			if c.lost {
				f.kill(faults)
			} else {
				run.cancel()
			}
			f.Pass(tolerance - time.Millisecond)
			checks("within the tolerance", nil)
			f.Pass(c.ends + time.Second)
			checks("after the tolerance", c.cause)
			testenv.MustIs(t, r.Run(t.Context()), singleton.ErrRunning)
			faults.Heal()
			f.Pass(time.Minute)
			testenv.Equal(t, name+" has begun again", len(began), 0)
			run.cancel()
			close(leave)
			testenv.Must(t, run.result())
			checks("after Run", nil)
		})
	}
}
