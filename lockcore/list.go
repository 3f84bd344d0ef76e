package lockcore

import (
	"context"
	"fmt"
	"slices"

	"github.com/noonlock/noonlock/internal/lock"
)

// Locks returns the names of the locks of all kinds that are held or have waiters, sorted. It
// includes names whose key another program has written, and excludes the locks of jobs and elections:
// see Elections of package election, and Jobs of package singleton. Use it for
// diagnosis: a lock that is acquired or released during the call may be missing or listed.
//
// progress is called during the search, at most once for each thousand keys, with the approximate
// number of keys that the servers have looked at. Calls do not overlap, and the search waits for
// them. It may be nil.
//
// Locks searches all keys of the server, or of all primaries of a cluster, a thousand per
// request, so it takes about a second for some million keys of any program. It delays other
// requests by less than a millisecond. Each server gets one request at a time.
// In a cluster, names whose slot moves during the call may be missing. If a
// server does not answer, Locks returns the error together with the names that it found. For a Client of a
// single server that is one of several primaries of a cluster, Locks returns an error.
func Locks(ctx context.Context, client *Client, progress func(keys int)) ([]string, error) {
	if client == nil {
		return nil, lock.Refuse("client", "a *lockcore.Client", "nil")
	}
	names, err := client.room().Search(ctx, lock.Search{Parts: []string{"lock", "queue"}, Progress: progress})
	names = slices.DeleteFunc(names, lock.IsReserved)
	if err != nil {
		return names, fmt.Errorf("lockcore: list locks: %w", err)
	}
	return names, nil
}
