package election

import (
	"context"
	"time"
)

// LeaderRecord is what an election's record says. At the server it is a hash,
// <prefix>:{election/<name>}:leader, to be read with HGETALL:
//
//	v         1, the version of this form
//	holder    identity of the leader; empty: it resigned and nobody followed
//	token     fencing token of its lease
//	term      number of the leadership
//	acquired  when it began, ms since 1970 on the server's clock
//	renewed   its last renewal, likewise
//	lease     ms, how long it leads from there unless it renews
//	metadata  what the leader says of itself, a JSON object of strings
//	released  when it resigned, ms; absent while it leads
//
// The record is written by scripts only while the lock is the writer's, or still free
// after it. It informs: the lock alone decides who leads.
type LeaderRecord struct {
	Holder   string
	Token    uint64
	Term     uint64
	Acquired time.Time
	Renewed  time.Time
	Lease    time.Duration
	Metadata map[string]string
	Released time.Time // zero: it has not resigned

	// Left is for how long the holder leads unless it renews, when the record was read;
	// not positive: it does not lead any more.
	Left time.Duration
}

// Record reads the election's record from the server: who leads, for which term, under
// which token. It is the zero value if nobody has led for a week.
func (le *LeaderElector) Record(ctx context.Context) (LeaderRecord, error) {
	r, err := le.election.Leader(ctx)
	return LeaderRecord(r), err
}

// A Candidate is a replica that waits to lead.
type Candidate struct {
	Identity string
	// Since is when it joined the queue, on the server's clock, or when it was promoted.
	Since time.Time
	// Promoted: TransferTo moved it past the candidates that had joined before it.
	Promoted bool
}

// Candidates returns the candidates, next leader first, without the leader. One that died
// is listed for up to 3.3 LeaseDurations.
func (le *LeaderElector) Candidates(ctx context.Context) ([]Candidate, error) {
	waiters, err := le.election.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Candidate, len(waiters))
	for i, w := range waiters {
		all[i] = Candidate(w)
	}
	return all, nil
}
