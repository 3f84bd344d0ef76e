package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
)

// Ready returns an error while no replica can be elected, although the server answers:
// before Run, in the queue of a read-only server, without the rights, with a record of
// another type, and when the work continues after its lease.
func TestFault77_NotReadyWhileNoReplicaCanLead(t *testing.T) {
	t.Parallel()
	fails := func(text string) func(e *env) { return func(e *env) { e.Bubble.Server().SetError(text) } }
	for name, test := range map[string]struct{ breaks, mends func(e *env) }{
		"a read-only replica": {fails("READONLY You can't write against a read only replica."), fails("")},
		"no rights":           {fails("NOPERM this user has no permissions"), fails("")},
		"another type": {
			func(e *env) {
				e.Raw.Del(e.Context(), key("leader"))
				e.Raw.Set(e.Context(), key("leader"), "x", 0)
				e.Raw.Del(e.Context(), key("lock"))
			},
			func(e *env) { e.Raw.Del(e.Context(), key("leader")) },
		},
		"silence": {func(e *env) { e.Bubble.Hang() }, func(e *env) { e.Bubble.Unhang() }},
	} {
		for _, early := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(e *env) {
					a, b := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick(""))
					if a.le.Ready() == nil {
						t.Error("ready before Run")
					}
					if early {
						test.breaks(e)
						a.run()
						b.run()
					} else {
						e.queueUp(a, b)
						time.Sleep(time.Minute)
						if a.le.Ready() != nil || b.le.Ready() != nil {
							t.Errorf("the leader: %v, the candidate: %v", a.le.Ready(), b.le.Ready())
						}
						test.breaks(e)
					}
					time.Sleep(time.Minute)
					if a.le.Ready() == nil || b.le.Ready() == nil {
						t.Errorf("while no replica can lead: %v and %v", a.le.Ready(), b.le.Ready())
					}
					test.mends(e)
					time.Sleep(time.Minute)
					if a.le.Ready() != nil || b.le.Ready() != nil {
						t.Errorf("afterwards: %v and %v", a.le.Ready(), b.le.Ready())
					}
					a.stop()
					b.stop()
					if a.le.Ready() == nil {
						t.Error("ready after Run")
					}
				})
			})
		}
	}
}

// Work that hangs after a lost lease is not ready. Neither is an OnStoppedLeading that
// hangs.
func TestFault77_NotReadyWhileACallbackHangs(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{true, false} {
		inBubble(t, func(e *env) {
			hold := make(chan struct{})
			le, err := election.NewLeaderElector(e.Client("a"), electionName, election.Callbacks{
				OnStartedLeading: func(ctx context.Context) {
					<-ctx.Done()
					if lost {
						<-hold
					}
				},
				OnStoppedLeading: func() { <-hold },
			}, quick(""))
			must(e, err)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- le.Run(ctx) }()
			e.Until("it leads", le.IsLeader)
			if lost {
				must(e, e.Raw.Del(e.Context(), key("lock")).Err())
			} else {
				must(e, le.Resign(e.Context()))
			}
			time.Sleep(time.Minute)
			if !errors.Is(le.Ready(), election.ErrNotReady) {
				t.Errorf("lost %v: it is ready", lost)
			}
			close(hold)
			e.Until("it leads again", le.IsLeader)
			must(e, le.Ready())
			cancel()
			must(e, <-done)
		})
	}
}
