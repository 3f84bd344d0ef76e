package lockcore

import (
	"context"
	"fmt"
	"slices"

	"github.com/noonlock/noonlock/internal/lock"
)

// ListConfig configures a search for names: Client.Locks, and the functions Names of election
// and Jobs and Daemons of singleton.
type ListConfig struct {
	// Progress is called during the search, at most once for each thousand keys, with the
	// approximate number of keys that the servers have looked at. Calls do not overlap, and the
	// search waits for them. Nil: no calls.
	Progress func(keys int)
}

// Locks returns the names of the locks of all kinds that are held or have waiters, sorted. It
// includes names whose key another program has written. The locks of jobs and elections are
// not: see the functions Names of election and Jobs and Daemons of singleton. Use it for
// diagnosis: a lock that is acquired or released during the call may be missing or listed.
//
// Locks searches all keys of the server, or of all primaries of a cluster, a thousand per
// request, so it takes about a second for some million keys of any program. It delays other
// requests by less than a millisecond. The number of requests at the same time is one for each
// server. In a cluster, names whose slot moves during the call may be missing. If a
// server does not answer, Locks returns the error together with the names that it found. If the Client is one of a single server, and the server is one of several
// primaries of a cluster, Locks returns an error.
func (c *Client) Locks(ctx context.Context, cfg ListConfig) ([]string, error) {
	names, err := c.room().Search(ctx, lock.Search{Parts: []string{"lock", "queue"}, Progress: cfg.Progress})
	names = slices.DeleteFunc(names, lock.IsReserved)
	if err != nil {
		return names, fmt.Errorf("lockcore: list locks: %w", err)
	}
	return names, nil
}
