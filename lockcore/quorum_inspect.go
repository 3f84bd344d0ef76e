package lockcore

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/wire"
)

// inspectAll asks all servers about a lock. It returns the views of the servers also with an error.
func (c *Client) inspectAll(ctx context.Context, q *lock.Quorum, name string) (Inspection, error) {
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
	for _, same := range holders {
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
