package election

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/noonlock/noonlock/internal/lock"
)

// Resign releases leadership. The context of OnStartedLeading is done with ErrResigned;
// when the callback has returned, the next candidate in the queue leads. Run then campaigns
// again, at the end of the queue.
//
// Resign returns when leadership is released. If ctx ends before, it returns ctx's error,
// and the release continues. Within OnStartedLeading, pass a context that ends. Otherwise
// Resign deadlocks, because it waits for the callback to return. The error is ErrNotLeader
// if this replica does not lead. It is lockcore.ErrNotHeld joined with the cause if the
// lease was lost meanwhile.
func (le *LeaderElector) Resign(ctx context.Context) error {
	t, err := le.leading()
	if err == nil {
		t.resign(ErrResigned)
		err = t.wait(ctx)
	}
	return le.election.opError("resign", err)
}

// TransferTo hands leadership over to the first candidate with the identity. It moves this candidate to the head of
// the queue and then resigns like Resign. If no candidate has the identity, the error is ErrNoCandidate, and this
// replica remains the leader. While the work drains, no other candidate passes the chosen one, not even a candidate
// that rejoins with an older position. Only a later TransferTo puts another candidate first. If the chosen candidate
// does not answer within a second of the release, the next candidate leads. If the server does not answer, TransferTo
// does not resign.
func (le *LeaderElector) TransferTo(ctx context.Context, identity string) error {
	t, err := le.leading()
	if err == nil {
		err = t.promote(ctx, identity)
	}
	if err == nil {
		t.resign(ErrResigned)
		err = t.wait(ctx)
	}
	return le.election.opError(fmt.Sprintf("transfer to %q in", identity), err)
}

// leading returns the present term, or an error if this replica does not lead.
func (le *LeaderElector) leading() (*term, error) {
	t := le.current()
	if t == nil {
		return nil, ErrNotLeader
	}
	if lost := t.Err(); lost != nil {
		return nil, errors.Join(ErrNotLeader, lost)
	}
	return t, nil
}

// handleRequest carries out an operator's new request in the observed record, in the background, if it is addressed to
// the present term. A failed request is not retried: the operator may repeat it.
func (le *LeaderElector) handleRequest() {
	le.mu.Lock()
	t, request := le.term, le.observed.Asked
	isNew := t != nil && request != nil && le.observed.Token == t.lease.Token() && t.request != request.ID
	if isNew {
		t.request = request.ID
	}
	le.mu.Unlock()
	if !isNew {
		return
	}
	le.election.lock.Client().Background(func(ctx context.Context) {
		if t.Err() != nil {
			return
		}
		counter, log := le.metrics.resigns, le.log.WithValues("token", t.lease.Token(), "by", request.By, "reason", request.Reason)
		if request.To != "" {
			counter, log = le.metrics.transfers, log.WithValues("to", request.To)
			if err := t.promote(ctx, request.To); err != nil {
				lock.Log(log, err, "leadership not transferred")
				return
			}
		}
		log.Info("resigning at the request of an operator")
		counter.Inc()
		t.resign(fmt.Errorf("%w, asked by %s", ErrResigned, strings.TrimSuffix(request.By+": "+request.Reason, ": ")))
	})
}
