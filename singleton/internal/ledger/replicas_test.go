package ledger_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// replicatedLedger is a ledger whose claims need the replica, and its state.
func replicatedLedger(t *testing.T, lease time.Duration) (e *env, replica *servers.RedisServer, l *ledger.Ledger, st ledger.State) {
	t.Helper()
	e = realEnv(t, "repl-diskless-sync-delay 0")
	replica = servers.Redis(t, e.Real.ReplicaOf())
	e.Until("the replica is in sync", func() bool {
		testenv.Must(e, e.Raw.Set(e.Context(), "probe", 1, time.Minute).Err())
		n, err := e.Raw.Do(e.Context(), "wait", 1, 1000).Int()
		return err == nil && n == 1
	})
	l = e.jobLedger(e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1}), ledger.Config{Lease: lockcore.LeaseConfig{TTL: lease}})
	return e, replica, l, e.opened(l)
}

// claimed claims the next tick. A claim is given back while the replica is slow.
func claimed(e *env, l *ledger.Ledger, st ledger.State) (run *ledger.Claim) {
	e.Helper()
	e.Until("it is claimed", func() bool {
		var err error
		run, err = l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Millisecond)}, st, ledger.ClaimConfig{})
		return err == nil
	})
	return run
}

// A claim that the replica does not acknowledge is given back, and counts as no attempt.
//
// Caught mutant: the claim counts.
func TestFault88_ClaimIsNotReplicated(t *testing.T) {
	t.Parallel()
	e, replica, l, st := replicatedLedger(t, 9*time.Second)
	replica.Pause()
	_, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Last.Add(time.Millisecond)}, st, ledger.ClaimConfig{})
	testenv.MustIs(e, err, lockcore.ErrNotReplicated)
	replica.Resume()
	run := claimed(e, l, st)
	if run.Attempt != 1 || run.Unsure {
		t.Errorf("attempt %d, unsure: %v", run.Attempt, run.Unsure)
	}
	testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
}

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
		"never back":   {3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, replica, l, st := replicatedLedger(t, test.lease)
			run := claimed(e, l, st)
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
