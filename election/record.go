package election

import (
	"context"
	"time"
)

// LeaderRecord is the record of an election. At the server it is a hash,
// <prefix>:{election/<name>}:leader, to be read with HGETALL:
//
//	v         1, the version of this form
//	by        hash of the leader's attempt; absent: a term that did not begin was taken back
//	holder    identity of the leader; empty: it resigned and has no successor
//	token     fencing token of its lease
//	term      number of the leadership
//	acquired  when it began, ms since 1970 on the server's clock
//	renewed   its last renewal, in the same unit
//	lease     ms, how long it leads from there unless it renews
//	metadata  Config.Metadata of the leader, a JSON object of strings
//	released  when it resigned, ms; absent while it leads
//	asked     the token, if an operator has asked this leader to resign
//	request   who asks it and why, a JSON object
//
// Scripts write the record only while the writer holds the lock, or while the lock is
// still free after it. An operator writes only the last two fields. The record is for
// information: the lock alone decides who leads.
type LeaderRecord struct {
	Holder   string
	Token    uint64
	Term     uint64
	Acquired time.Time
	Renewed  time.Time
	Lease    time.Duration
	Metadata map[string]string
	Released time.Time // zero: it has not resigned

	// Asked is the newest request of an operator to this leader, see Election.Resign. It is nil if
	// there is none.
	Asked *ResignRequest

	// Left is the remaining time of the lease when the record was read. If it is not
	// positive, the holder no longer leads.
	Left time.Duration
}

// Record reads the election's record from the server: the leader, its term and its token.
// It is the zero value if no replica has led for a week. If the server does not answer,
// Record returns an error after at most two thirds of LeaseDuration.
func (le *LeaderElector) Record(ctx context.Context) (LeaderRecord, error) {
	return (&Election{election: le.election}).Record(ctx)
}

// A Candidate is a replica that waits to lead.
type Candidate struct {
	Identity string `json:"identity"`
	// Since is when it joined the queue, on the server's clock, or when it was promoted.
	Since time.Time `json:"since"`
	// Promoted: TransferTo moved it past the candidates that had joined before it.
	Promoted bool `json:"promoted,omitempty"`
}

// Candidates returns the candidates, next leader first, without the leader. One that died
// is listed for up to 3.3 LeaseDurations, or 3.3 s if that is longer. If the server does not answer,
// Candidates returns an error after two thirds of LeaseDuration, but not before 100 ms and after at
// most 6 s.
func (le *LeaderElector) Candidates(ctx context.Context) ([]Candidate, error) {
	return (&Election{election: le.election}).Candidates(ctx)
}
