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
	if client == nil {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	names, err := lock.Of(client).Search(ctx, lock.Search{Prefix: lock.JobNames, Parts: []string{"job"}, Progress: progress})
	if err != nil {
		return names, fmt.Errorf("singleton: list jobs: %w", err)
	}
	return names, nil
}
