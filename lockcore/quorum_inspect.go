package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/wire"
)

var errNoState = errors.New("lockcore: the server did not answer about its state")

// inspect asks all servers about a lock. It returns the views of the servers also with an error.
func (k *quorumTopology) inspect(ctx context.Context, name string) (Inspection, error) {
	seen := newInspection(name)
	if err := checkName("name", name); err != nil {
		return seen, err
	}
	type views struct {
		states  []quorum.State
		answers []wire.Answer
	}
	done := make(chan views, 1)
	request := k.c.inspection(name)
	if !k.c.background(func(context.Context) {
		answers := k.wire.Each(func(int) wire.Request { return request }, defaultTTL/5)
		done <- views{k.states(), answers}
	}) {
		return seen, ErrClosed
	}
	var v views
	select {
	case v = <-done:
	case <-ctx.Done():
		return seen, ended(ctx)
	}
	answered, holders := 0, map[string][]Holder{}
	refused := map[int]wire.Answer{}
	for i, a := range v.answers {
		view := ServerView{Address: k.targets[i].Address(), Err: a.Err}
		one := inspected{}
		if view.Err == nil {
			view.Err = one.read(request, a.Value)
		}
		if view.Err == nil && !v.states[i].Known {
			view.Err = errNoState
		}
		if view.Err != nil {
			refused[i] = wire.Answer{Err: view.Err}
		} else {
			s := v.states[i]
			answered++
			view.Member, view.List, view.Waits = s.Member, s.List.Number, time.Duration(s.Left)*time.Millisecond
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
	if answered < quorum.Majority(len(v.answers)) {
		return seen, shortage(request, refused, nil, len(v.answers))
	}
	for _, same := range holders {
		if len(same) < quorum.Majority(len(v.answers)) {
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
