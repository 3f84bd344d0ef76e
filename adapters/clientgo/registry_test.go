package clientgo_test

import (
	"context"
	"testing"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A program with controller-runtime may pass its registry to an elector of package election. The metric
// of the leader then exists already, and is shared.
func TestElectorOnControllerRuntimesRegistry(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		status := func() float64 {
			e.Helper()
			value, found := testenv.Series(e, ctrlmetrics.Registry, "leader_election_master_status", "name", "one")
			if !found {
				return -1
			}
			return value
		}
		c := e.ClientWith(e.Direct(), lockcore.Config{Registerer: ctrlmetrics.Registry})
		le, err := election.NewLeaderElector(c, "one", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {},
		}, election.Config{})
		must(e, err)
		ctx, cancel := context.WithCancel(e.Context())
		ended := make(chan error, 1)
		go func() { ended <- le.Run(ctx) }()
		e.Until("it leads", func() bool { return status() == 1 })
		cancel()
		must(e, <-ended)
		testenv.Equal(e, "the status in the end", status(), 0)
	})
}
