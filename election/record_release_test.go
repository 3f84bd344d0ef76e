package election

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
)

// Run's context ends at the moment of the grant: it is too late to begin. The lock is free at once, and the
// term does not count.
func TestStopWhenGranted(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		le, err := NewLeaderElector(e.Client("a"), "board", Callbacks{
			OnStartedLeading: func(context.Context) { e.Error("it leads") }, OnStoppedLeading: func() { e.Error("it stops") },
		}, Config{LeaseDuration: time.Hour}) // too long to wait for its end
		testenv.Must(e, err)
		granted := campaign(e, le.election)
		testenv.Must(e, (&candidacy{le: le}).Release(e.Context(), granted))
		r, err := le.election.Record(e.Context())
		testenv.Must(e, err)
		if r.Holder != "" || r.Term != 0 {
			e.Errorf("the record is %+v", r)
		}
		if next := campaign(e, handle(e, e.Client("b"), time.Hour, nil)); next.led.Load().Number != 1 {
			e.Errorf("the next term is %d", next.led.Load().Number)
		}
	})
}
