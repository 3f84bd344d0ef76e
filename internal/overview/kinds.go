// Package overview is what noonctl and the status page have in common: the kinds of things, how each kind
// is listed, read, described and changed, and in which order its list is shown. Both show the labels and texts of its
// Cells, and only lay them out. It knows only the public API of the packages that it imports.
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
	Kinds // how many there are
)

// String returns the plural, such as "locks".
func (k Kind) String() string {
	return [...]string{"elections", "jobs", "locks", "partitions"}[k]
}

// Singular returns the singular, such as "lock".
func (k Kind) Singular() string { return k.String()[:len(k.String())-1] }

// Names returns the names of all things of the kind, sorted. progress is that of lockcore.Locks. It may return names together with an error.
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

// Watch returns a function that reports whether the thing may have changed since the last call, until ctx ends. It
// never does for a lock, and for a name that Read refuses. The death of a holder is no change: see Thing.Left.
func (k Kind) Watch(ctx context.Context, client *lockcore.Client, name string) (changed func() bool) {
	switch k {
	case Elections:
		if e, err := election.NewElection(client, name); err == nil {
			return arrived(e.Watch(ctx))
		}
	case Jobs:
		if j, err := singleton.NewJob(client, name); err == nil {
			return arrived(j.Watch(ctx))
		}
	default:
	}
	return arrived[struct{}](nil)
}

// arrived returns a function that reports whether a channel had a value.
func arrived[T any](from <-chan T) func() bool {
	return func() bool {
		select {
		case _, ok := <-from:
			return ok
		default:
			return false
		}
	}
}

// Each calls f for all things, for up to atOnce at the same time. After an error it calls f no more, the
// contexts of the other calls end, and it returns this error.
func Each[T any](ctx context.Context, atOnce int, all []T, f func(ctx context.Context, i int, one T) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var once sync.Once
	var failure error
	var calls sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, one := range all {
		if slots <- struct{}{}; ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, i, one); err != nil {
				once.Do(func() { failure = err })
				stop()
			}
		})
	}
	calls.Wait()
	if failure == nil {
		return context.Cause(ctx) // the caller's has ended
	}
	return failure
}
