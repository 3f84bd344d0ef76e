package election

import (
	"context"
	"errors"
	"fmt"
)

// Resign gives up the lead: the context of OnStartedLeading is done with
// ErrResigned, and when that has returned, the next in line leads. Run then
// stands for election again, at the end of the line.
//
// It returns when the lead is given up. If ctx ends before, it returns ctx's error,
// and the rest goes on. So call it from within OnStartedLeading only with a
// context that ends: it would wait for itself. The error is ErrNotLeader if this
// replica does not lead, or lockcore.ErrNotHeld joined with the cause if the lead
// was lost on the way, or was being kept already (KeepOnCancel). Who resigns while
// Run ends, and the work with it, gives the lead up although KeepOnCancel is set.
func (le *LeaderElector) Resign(ctx context.Context) error {
	const op = "election: resign"
	r, err := le.mine()
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", op, le.name, err)
	}
	return nil
}

// TransferTo gives the lead to the first candidate of that identity: it moves to
// the head of the line, and then this replica resigns as by Resign. If nobody of
// that identity stands in line, the error is ErrNoCandidate, and
// this replica goes on to lead. Nobody passes the candidate while the work is
// drained, not even one that comes back to an older place in line; a later
// TransferTo does. A candidate that cannot be reached when its turn
// comes is passed over, and the next one leads.
func (le *LeaderElector) TransferTo(ctx context.Context, identity string) error {
	const op = "election: transfer"
	r, err := le.mine()
	if err == nil {
		var found bool
		if found, err = r.lead.Promote(ctx, identity); err == nil && !found {
			err = &NoCandidateError{Election: le.name, Identity: identity}
		}
	}
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %q to %q: %w", op, le.name, identity, err)
	}
	return nil
}

// mine is the lead, if it is this replica's now.
func (le *LeaderElector) mine() (*reign, error) {
	r := le.current()
	if r == nil {
		return nil, ErrNotLeader
	}
	if lost := r.lead.Err(); lost != nil {
		return nil, errors.Join(ErrNotLeader, lost)
	}
	return r, nil
}

// end ends the work and waits for the release.
func (r *reign) end(ctx context.Context) error {
	r.resigned.Store(true)
	r.stop(ErrResigned)
	select {
	case <-r.released:
		return r.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("election: the lead is given up as soon as OnStartedLeading has returned"))
	}
}
