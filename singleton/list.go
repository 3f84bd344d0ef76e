package singleton

import (
	"context"
	"fmt"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// Jobs returns the names of the jobs that have a ledger, sorted. A Once has one, too: the
// name of its job begins with once/. progress, the cost and the limits are those of lockcore.Locks.
func Jobs(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	return list(ctx, client, "jobs", lock.Search{Prefix: lock.JobNames, Parts: []string{"job"}, Progress: progress})
}

// Daemons returns the names of the daemons that run somewhere, that wait to run, or that ran
// within the last week, sorted. Daemon.Inspect says which replica runs one. progress, the cost and the limits are
// those of lockcore.Locks.
func Daemons(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	return list(ctx, client, "daemons", lock.Search{
		Prefix: lock.JobNames + daemonNames, Parts: []string{"lock", "queue", "fence"}, Progress: progress,
	})
}

func list(ctx context.Context, client *lockcore.Client, what string, s lock.Search) ([]string, error) {
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	names, err := lock.Of(client).Search(ctx, s)
	if err != nil {
		return names, fmt.Errorf("singleton: list %s: %w", what, err)
	}
	return names, nil
}
