package election_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

var errSick = errors.New("the disk is full")

// A sickness is how Healthy behaves; nil: it passes.
type sickness = func(ctx context.Context) error

func fails(context.Context) error { return errSick }

// checked returns the config of a replica with a health check.
func checked(cfg election.Config, now *atomic.Pointer[sickness]) election.Config {
	cfg.Healthy = func(ctx context.Context) error {
		if is := now.Load(); is != nil {
			return (*is)(ctx)
		}
		return nil
	}
	return cfg
}

// While the check of a leader fails, or does not return, another replica leads. It begins when the work
// has ended, although that takes longer than a lease. The replica is not a candidate again before its
// check passes.
//
// Caught mutants: no timeout of the check; the candidate stays in the queue; the lease is not renewed.
func TestFault135_TheHealthCheckOfALeaderFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		is   sickness
		want []error
	}{
		"it fails":             {fails, []error{election.ErrResigned, errSick}},
		"it waits for its end": {func(ctx context.Context) error { <-ctx.Done(); return nil }, []error{election.ErrResigned}},
		"it ignores its end":   {func(context.Context) error { time.Sleep(20 * time.Second); return nil }, []error{election.ErrResigned}},
	} {
		for _, servers := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				onQuorum(t, servers, func(e *quorumEnv) {
					var now atomic.Pointer[sickness]
					a, b := e.replica(e.client("a"), checked(quick(), &now)), e.replica(e.client("b"), quick())
					ended := make(chan time.Time, 3)
					a.work = func(ctx context.Context) {
						<-ctx.Done()
						ended <- time.Now()
						time.Sleep(3 * leaseDuration)
					}
					a.run().leads(1)
					b.run()
					time.Sleep(time.Minute)
					b.never()
					begin := time.Now()
					now.Store(&test.is)
					if took := (<-ended).Sub(begin); took > 2*retryPeriod {
						t.Errorf("the work ends after %s", took)
					}
					b.leads(1)
					mustIs(e, a.ended(1), test.want...)
					time.Sleep(10 * time.Second)
					mustIs(e, a.le.Ready(), append(test.want[1:], election.ErrNotReady)...)
					if servers == 1 && e.servers[0].Server().Exists(key("queue")) {
						t.Error("it is still a candidate")
					}
					now.Store(nil)
					time.Sleep(time.Minute)
					must(e, a.le.Ready())
					b.stop()
					a.leads(2)
					if _, n := b.term(); n != 1 {
						t.Errorf("the healthy replica has led %d times", n)
					}
				})
			})
		}
	}
}

// A check that fails everywhere leaves no leader, and one that alternates changes no leader all the time.
// A candidate leaves the queue while its check fails.
func TestFault135_AHealthCheckThatAlternates(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var now, later atomic.Pointer[sickness]
		sick := fails
		now.Store(&sick)
		a, b := e.replica(e.Client("a"), checked(quick(), &now)), e.replica(e.Client("b"), checked(quick(), &later))
		a.run()
		time.Sleep(time.Minute)
		a.never()
		if e.Exists(key("lock")) {
			t.Error("somebody leads although the check fails everywhere")
		}
		b.run().leads(1)
		now.Store(nil)
		e.queued(1)
		now.Store(&sick)
		e.queued(0)
		b.stop()
		time.Sleep(time.Minute)
		a.never()
		calls := 0
		alternates := func(context.Context) error {
			if calls++; calls%4 == 0 { // so a term is longer than RetryPeriod
				return errSick
			}
			return nil
		}
		now.Store(&alternates)
		time.Sleep(time.Minute)
		if _, n := a.term(); n < 10 || n > 45 {
			t.Errorf("it has led %d times in a minute", n)
		}
	})
}

// A Healthy and an OnNewLeader that have not returned at the end of Run delay the calls of the next Run, and not its
// end. Meanwhile, the replica is not healthy. The next Run calls both when they have returned.
func TestCallsOfTwoRunsDoNotOverlap(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		hold := make(chan struct{})
		var calls [2]int
		var at [2]atomic.Int32
		hangs := func(which int) {
			if calls[which]++; at[which].Add(1) > 1 {
				t.Errorf("two calls of %d at a time", which)
			}
			<-hold
			at[which].Add(-1)
		}
		cfg := quick()
		cfg.Healthy = func(context.Context) error { hangs(0); return nil }
		callbacks := idle
		callbacks.OnNewLeader = func(string) { hangs(1) }
		le := testenv.Call(election.NewLeaderElector(e.Client("a"), electionName, callbacks, cfg)).Must(e)
		b, c := e.replica(e.Client("b"), quick()), e.replica(e.Client("c"), quick())
		b.run().leads(1)
		run := func(during func()) (end time.Duration) {
			t.Helper()
			ctx, cancel := context.WithCancel(e.Context())
			done := make(chan error)
			go func() { done <- le.Run(ctx) }()
			e.Pass(time.Minute)
			during()
			end = e.Clock()
			cancel()
			must(e, <-done)
			return e.Clock() - end
		}
		unhealthy := func() {
			if err := le.Ready(); !errors.Is(err, election.ErrNotReady) || !strings.Contains(err.Error(), "Healthy has not returned") {
				t.Errorf("Ready: %v", err)
			}
		}
		run(unhealthy)
		b.stop()
		c.run().leads(1) // which is to be announced
		if took := run(unhealthy); took > time.Second {
			t.Errorf("the second Run took %s to end", took)
		}
		if calls != [2]int{1, 1} {
			t.Errorf("%v calls while the first ones hang", calls)
		}
		run(func() {
			close(hold)
			e.Pass(time.Minute)
			must(e, le.Ready())
		})
		if calls[0] < 2 || calls[1] != 2 {
			t.Errorf("%v calls", calls)
		}
	})
}
