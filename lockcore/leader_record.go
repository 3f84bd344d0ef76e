package lockcore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
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
// The record is written by scripts only while the lock is the writer's, or still
// free after it. It informs: who leads is decided by the lock alone.
type LeaderRecord struct {
	Holder   string
	Token    uint64
	Term     uint64
	Acquired time.Time
	Renewed  time.Time
	Lease    time.Duration
	Metadata map[string]string
	Released time.Time // zero: it has not resigned

	// Left is for how long the holder leads unless it renews, when the record was
	// read; not positive: it does not lead any more. Watch does not tell it.
	Left time.Duration
}

// Leader reads the record. It is the zero value if nobody has led for a week.
func (e *Election) Leader(ctx context.Context) (LeaderRecord, error) {
	r, err := e.look(ctx)
	if err != nil {
		return LeaderRecord{}, opError("lockcore: leader", e.name, err)
	}
	return r, nil
}

func (e *Election) look(ctx context.Context) (r LeaderRecord, err error) {
	s := e.c.scripts.leaderLook
	answer, err := e.list(ctx, s.Call([]string{e.keys.lock, e.keys.fence, e.keys.leader}))
	if err != nil {
		return r, err
	}
	if len(answer) < 2 || len(answer)%2 != 0 {
		return r, s.OddReply(answer)
	}
	if len(answer) == 2 {
		return r, nil
	}
	fields := make(map[string]string, len(answer)/2)
	for i := 2; i < len(answer); i += 2 {
		fields[wire.Text(answer[i])] = wire.Text(answer[i+1])
	}
	if v, err := strconv.Atoi(cmp.Or(fields["v"], "1")); err != nil || v > 1 {
		return r, ErrNewerSchema
	}
	if r, err = readLeader(fields); err != nil {
		return r, err
	}
	// The counter ends a week after the last grant, however long that leader leads.
	token := cmp.Or(wire.Text(answer[1]), fields["token"])
	if left, _ := answer[0].(int64); token == fields["token"] && r.Released.IsZero() {
		r.Left = time.Duration(left) * time.Millisecond
	}
	return r, nil
}

func readLeader(fields map[string]string) (LeaderRecord, error) {
	r := LeaderRecord{Holder: fields["holder"]}
	var errs [7]error
	var lease int64
	r.Token, errs[0] = strconv.ParseUint(fields["token"], 10, 64)
	r.Term, errs[1] = strconv.ParseUint(fields["term"], 10, 64)
	r.Acquired, errs[2] = readMillis(fields["acquired"])
	r.Renewed, errs[3] = readMillis(fields["renewed"])
	lease, errs[4] = strconv.ParseInt(fields["lease"], 10, 64)
	r.Lease = time.Duration(lease) * time.Millisecond
	errs[5] = json.Unmarshal([]byte(cmp.Or(fields["metadata"], "{}")), &r.Metadata)
	r.Released, errs[6] = readMillis(fields["released"])
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("lockcore: leader record: %w", err)
	}
	return r, nil
}

// sameLead reports whether two records tell of the same state of the same term.
func (r LeaderRecord) sameLead(o LeaderRecord) bool {
	return r.Token == o.Token && r.Holder == o.Holder && r.Term == o.Term && r.Released.Equal(o.Released)
}

// A Candidate stands in line for an election.
type Candidate struct {
	Identity string
	// Since is when it joined the line, on the server's clock, or when it was moved to
	// the head of it.
	Since time.Time
	// Preferred: it was moved, by Prefer, past those who had joined before it.
	Preferred bool
}

// Candidates are those who stand in line, next leader first, without the leader.
// One that died is listed until it has not been heard of for 3.3 TTL.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	const op = "lockcore: candidates"
	s := e.c.scripts.leaderLine
	answer, err := e.list(ctx, s.Call([]string{e.keys.queue, e.keys.seen}))
	if err != nil {
		return nil, opError(op, e.name, err)
	}
	line := make([]Candidate, 0, len(answer)/2)
	for i := 0; i+1 < len(answer); i += 2 {
		p, ok := parseAttempt(wire.Text(answer[i]))
		at, err := strconv.ParseFloat(wire.Text(answer[i+1]), 64)
		if !ok || err != nil {
			continue // not of this library
		}
		line = append(line, Candidate{Identity: p.identity, Since: placeTime(at), Preferred: at < 0})
	}
	return line, nil
}

// placeTime is the time that a place in line tells: it is negative of who was moved to
// the head, see leader_transfer.
func placeTime(at float64) time.Time { return time.UnixMilli(int64(math.Abs(at))).UTC() }

// ErrNoCandidate is what every *NoCandidateError is.
var ErrNoCandidate = errors.New("lockcore: no such candidate")

// NoCandidateError says that nobody of that identity stands in line. It is
// ErrNoCandidate.
type NoCandidateError struct {
	Election string
	Identity string
}

func (e *NoCandidateError) Error() string {
	return fmt.Sprintf("lockcore: nobody of identity %q stands in line for election %q", e.Identity, e.Election)
}

// Is reports true for ErrNoCandidate.
func (e *NoCandidateError) Is(target error) bool { return target == ErrNoCandidate }

// Prefer moves the first candidate of that identity to the head of the line, so
// that it is the next to lead. Nobody passes it there, not even a candidate that was
// cut off, stood before it, and takes its place in line up again; only a later Prefer
// does. The error is ErrNoCandidate if there is none, and
// ErrNotHeld if the lead has ended.
func (l *Leadership) Prefer(ctx context.Context, identity string) error {
	const op = "lockcore: prefer"
	e, s := l.e, l.c.scripts.leaderTransfer
	if ctx == nil {
		return opError(op, e.name, refuse("ctx", "a context", "%s", "nil"))
	}
	if err := checkIdentity("identity", identity); err != nil {
		return opError(op, e.name, err)
	}
	if cause := l.checkClock(); cause != nil {
		return opError(op, e.name, ErrNotHeld, cause)
	}
	req := s.Call([]string{e.keys.lock, e.keys.queue, e.keys.seen}, l.a.value, identity)
	answer, err := l.c.insist(ctx, req, e.terms.timeout(), 2*e.terms.timeout())
	n, err := req.Number(answer, err)
	switch {
	case err != nil:
		return opError(op, e.name, err)
	case n == 1:
		return nil
	case n == 0:
		return opError(op, e.name, &NoCandidateError{Election: e.name, Identity: identity})
	}
	return opError(op, e.name, ErrNotHeld)
}
