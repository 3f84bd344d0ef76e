package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/noonlock/noonlock/lockcore"
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
	r, err := le.mine(ctx)
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
// that identity stands in line, the error is lockcore.ErrNoCandidate, and
// this replica goes on to lead. Nobody passes the candidate while the work is
// drained, not even one that comes back to an older place in line; a later
// TransferTo does. A candidate that cannot be reached when its turn
// comes is passed over, and the next one leads.
func (le *LeaderElector) TransferTo(ctx context.Context, identity string) error {
	const op = "election: transfer"
	r, err := le.mine(ctx)
	if err == nil {
		err = r.lead.Prefer(ctx, identity)
	}
	if err == nil {
		err = r.end(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s %q to %q: %w", op, le.name, identity, err)
	}
	return nil
}

// Candidates are those who stand in line, next leader first, without the leader.
// One that died is listed for up to 3.3 LeaseDurations.
func (le *LeaderElector) Candidates(ctx context.Context) ([]lockcore.Candidate, error) {
	return le.election.Candidates(ctx)
}

// Record reads the election's record from the server: who leads, for which term,
// under which token. See lockcore.LeaderRecord.
func (le *LeaderElector) Record(ctx context.Context) (lockcore.LeaderRecord, error) {
	return le.election.Leader(ctx)
}

// mine is the lead, if it is this replica's now.
func (le *LeaderElector) mine(ctx context.Context) (*reign, error) {
	if ctx == nil {
		return nil, &ConfigError{"ctx", "nil", "a context"}
	}
	r := le.current()
	if r == nil {
		return nil, ErrNotLeader
	}
	if lost := r.lead.Ended(); lost != nil {
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
