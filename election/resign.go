package election

import (
	"context"
	"errors"
	"fmt"
)

// Resign releases leadership. The context of OnStartedLeading is done with ErrResigned;
// when the callback has returned, the next candidate in the queue leads. Run then campaigns
// again, at the end of the queue.
//
// Resign returns when leadership is released. If ctx ends before, it returns ctx's error,
// and the release continues. Within OnStartedLeading, pass a context that ends. Otherwise
// Resign deadlocks, because it waits for the callback to return. The error is ErrNotLeader
// if this replica does not lead. It is lockcore.ErrNotHeld joined with the cause if the
// lease was lost meanwhile, or if the work has returned and the lease is kept until it expires
// (KeepOnCancel). If Resign is called before the work has returned, it releases leadership,
// even if Run's context has ended and KeepOnCancel is set.
func (le *LeaderElector) Resign(ctx context.Context) error {
	r, err := le.mine()
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("election: resign %q: %w", le.name, err)
	}
	return nil
}

// TransferTo hands leadership over to the first candidate with the identity. It moves this
// candidate to the head of the queue and then resigns like Resign. If no candidate has the
// identity, the error is ErrNoCandidate, and this replica remains the leader. While the work
// drains, no other candidate passes the chosen one, not even one that rejoins at an older
// place. Only a later TransferTo puts another candidate first. If no message reaches the
// candidate at the release, the next one leads. If the server does not answer, TransferTo returns an error
// after at most two thirds of LeaseDuration, and does not resign.
func (le *LeaderElector) TransferTo(ctx context.Context, identity string) error {
	r, err := le.mine()
	if err == nil {
		var found bool
		if found, err = r.lease.Promote(ctx, identity); err == nil && !found {
			err = ErrNoCandidate
		}
	}
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("election: transfer %q to %q: %w", le.name, identity, err)
	}
	return nil
}

// mine returns the leadership, or why this replica does not lead.
func (le *LeaderElector) mine() (*leadership, error) {
	r := le.current()
	if r == nil {
		return nil, ErrNotLeader
	}
	if lost := r.lease.Err(); lost != nil {
		return nil, errors.Join(ErrNotLeader, lost)
	}
	return r, nil
}

// resign ends the work.
func (r *leadership) resign(cause error) {
	r.resigned.Store(true)
	r.stop(cause)
}

// end ends the work and waits for the release.
func (r *leadership) end(ctx context.Context) error {
	r.resign(ErrResigned)
	select {
	case <-r.released:
		return r.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("election: leadership is released as soon as OnStartedLeading has returned"))
	}
}
