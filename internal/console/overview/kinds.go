// Package overview lists, reads, describes, sorts and changes locks, elections, jobs and partitions for noonctl and the
// status page. Both lay out the Cells, and add no labels and texts. Package overview uses only the public API of the
// packages that it imports.
package overview

import (
	"context"
	"sync"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A Kind is a kind of things that have names.
type Kind int

// The kinds, in the order of the status page.
const (
	Elections Kind = iota
	Jobs
	Locks
	Partitions
	Kinds // number of kinds
)

// String returns the plural, such as "locks".
func (k Kind) String() string {
	return [...]string{"elections", "jobs", "locks", "partitions"}[k]
}

// Singular returns the singular, such as "lock".
func (k Kind) Singular() string { return k.String()[:len(k.String())-1] }

// Names returns the sorted names of all things of the kind. It may return names together with an error. For progress,
// see lockcore.Locks.
func (k Kind) Names(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	switch k {
	case Elections:
		return election.Elections(ctx, client, progress)
	case Jobs:
		return singleton.Jobs(ctx, client, progress)
	case Partitions:
		return partition.Sets(ctx, client, progress)
	default:
		return lockcore.Locks(ctx, client, progress)
	}
}

// Watch returns a function that reports whether the thing may have changed since the last call, until ctx ends. A lock,
// and a name that Read refuses, never change. The death of a holder is no change: see Thing.Left.
func (k Kind) Watch(ctx context.Context, client *lockcore.Client, name string) (changed func() bool) {
	var changes <-chan struct{}
	switch k {
	case Elections:
		if e, err := election.NewElection(client, name); err == nil {
			changes = e.Watch(ctx)
		}
	case Jobs:
		if j, err := singleton.NewJob(client, name); err == nil {
			changes = j.Watch(ctx)
		}
	default:
	}
	return func() bool {
		select {
		case _, ok := <-changes:
			return ok
		default:
			return false
		}
	}
}

// Each calls f for all elements, with up to limit calls at the same time. After an error, Each begins no further calls,
// ends the contexts of the other calls, and returns the error.
func Each[T any](ctx context.Context, limit int, all []T, f func(ctx context.Context, i int, element T) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var once sync.Once
	var failure error
	var calls sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i, element := range all {
		if slots <- struct{}{}; ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, i, element); err != nil {
				once.Do(func() { failure = err })
				stop()
			}
		})
	}
	calls.Wait()
	if failure == nil {
		return context.Cause(ctx) // the caller's context has ended
	}
	return failure
}
