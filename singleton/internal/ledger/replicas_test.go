package ledger_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A claim that the replica does not acknowledge is given back, and counts as no attempt.
// A completion that the replica does not acknowledge is sent again until the lease would have
// ended. Then the outcome is unknown to the caller; the server has recorded it. If the
// replica is back earlier, Complete succeeds. The lease is not counted as lost.
//
// Caught mutants: the completion counts; it is not sent again; the lease is renewed meanwhile,
// and found to be lost; a completion that was sent again writes nothing.
func TestFault88_CompletionIsNotReplicated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ lease, back time.Duration }{
		"back in time": {20 * time.Second, 3 * time.Second},
		"never back":   {6 * time.Second, 0}, // no renewal is due before the first answer
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t, "repl-diskless-sync-delay 0")
			replica := servers.Redis(t, e.Real.ReplicaOf())
			l := e.jobLedger(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1}), ledger.Config{Lease: new(testenv.TTL(test.lease))})
			st := e.opened(l)
			tick := ledger.RunID{Tick: st.Last.Add(time.Millisecond)}
			claims := func() (run *ledger.Claim) {
				e.Until("the replica is in sync", func() bool {
					var err error
					run, err = l.Claim(e.Context(), tick, st, time.Time{})
					return err == nil
				})
				return run
			}
			run := claims()
			replica.Pause()
			defer replica.Resume()
			if test.back > 0 {
				time.AfterFunc(test.back, replica.Resume)
			}
			began := time.Now()
			var again atomic.Bool // a request after the first one wrote its mark, which lasts a second
			go func() {
				for e.Context().Err() == nil {
					time.Sleep(100 * time.Millisecond)
					if n, err := e.Raw.Exists(e.Context(), e.key("job/draw", "ack")).Result(); err != nil {
						return
					} else if n > 0 && time.Since(began) > 1500*time.Millisecond {
						again.Store(true)
					}
				}
			}()
			err := run.Complete(e.Context(), ledger.OutcomeSucceeded, "")
			took := time.Since(began)
			testenv.MustIs(e, run.Err(), lockcore.ErrReleased)
			runs := e.runs(10)
			if len(runs) != 1 || runs[0].Outcome != ledger.OutcomeSucceeded {
				t.Errorf("the ledger has %+v", runs)
			}
			if test.back == 0 {
				testenv.MustIs(e, err, lockcore.ErrNotReplicated, lockcore.ErrUnknown)
				if took > 2*test.lease {
					t.Errorf("Complete took %v", took)
				}
				st.Last, tick = tick.Tick, ledger.RunID{Tick: tick.Tick.Add(time.Millisecond)}
				_, err = l.Claim(e.Context(), tick, st, time.Time{})
				testenv.MustIs(e, err, lockcore.ErrNotReplicated)
				replica.Resume()
				if next := claims(); next.Attempt != 1 || next.Unsure {
					t.Errorf("after a claim that was given back: attempt %d, unsure: %v", next.Attempt, next.Unsure)
				}
				return
			}
			testenv.Must(e, err)
			if took < test.back {
				t.Errorf("Complete returned after %v, before the replica was back", took)
			}
			if !again.Load() {
				t.Error("the last request wrote nothing, so newer servers would not ask the replica for it")
			}
		})
	}
}
