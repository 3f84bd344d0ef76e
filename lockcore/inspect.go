package lockcore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/wire"
)

// Inspect returns the holders and waiters of the lock of a name, of any kind, also of election/NAME. It writes
// nothing, except on a quorum: a server that has lost its data stores a random number for its return.
//
// On a quorum, Inspect asks each server once. If a majority does not answer, the error
// is ErrNoQuorum, and the Inspection has Servers.
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	if q := c.room().Quorum(); q != nil {
		seen, err := c.inspectQuorum(ctx, q, name)
		return seen, lock.OpError("inspect", name, err)
	}
	seen, err := c.inspect(ctx, name)
	return seen.Inspection, lock.OpError("inspect", name, err)
}

func (c *Client) inspect(ctx context.Context, name string) (inspected, error) {
	seen := inspected{Inspection: newInspection(name)}
	if err := lock.CheckName("name", name); err != nil {
		return seen, err
	}
	req := c.room().Inspection(name)
	answer, err := c.ask(ctx, name, req)
	if err != nil {
		return seen, err
	}
	return seen, seen.read(req, answer)
}

func (c *Client) ask(ctx context.Context, name string, req wire.Request) (any, error) {
	return c.room().Ask(ctx, name, req, lock.AskFor, lock.AskWithin)
}

// inspectQuorum asks all servers about a lock. It returns the views of the servers also with an error.
func (c *Client) inspectQuorum(ctx context.Context, q *lock.Quorum, name string) (Inspection, error) {
	seen := newInspection(name)
	if err := lock.CheckName("name", name); err != nil {
		return seen, err
	}
	request := c.room().Inspection(name)
	views, err := q.Views(ctx, request, lock.AskFor)
	if err != nil {
		return seen, err
	}
	answered, holders := 0, map[string][]Holder{}
	refused := map[int]wire.Answer{}
	for i, v := range views {
		view := ServerView{Address: v.Address, Err: v.Answer.Err}
		one := inspected{}
		if view.Err == nil {
			view.Err = one.read(request, v.Answer.Value)
		}
		if view.Err != nil {
			refused[i] = wire.Answer{Err: view.Err}
		} else {
			s := v.State
			answered++
			view.Member, view.List, view.Waits = s.Member, s.List.Number, time.Duration(s.WaitLeft)*time.Millisecond
			view.Kind, view.Holders = one.Kind, one.Holders
			for n, attempt := range one.attempts {
				holders[attempt] = append(holders[attempt], one.Holders[n])
			}
			seen.NoTTL = seen.NoTTL || one.NoTTL
			if one.Kind == LockForeign {
				seen.Kind = LockForeign
			}
		}
		seen.Servers = append(seen.Servers, view)
	}
	if answered < quorum.Majority(len(views)) {
		return seen, q.Shortage(request, refused)
	}
	for _, same := range holders { // the same lease, as several servers have it
		if len(same) < quorum.Majority(len(views)) {
			continue
		}
		h := same[0]
		for _, o := range same {
			h.TTL = min(h.TTL, o.TTL)
		}
		seen.Kind, seen.Holders = LockMutex, []Holder{h}
	}
	return seen, nil
}

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
