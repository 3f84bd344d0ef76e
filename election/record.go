package election

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// LeaderRecord is the record of an election. At the server it is a hash,
// <prefix>:{election/<name>}:leader, to be read with HGETALL:
//
//	v         1, the version of this form
//	by        hash of the leader's attempt. The record counts while the lock has this attempt
//	holder    identity of the leader; empty after a resignation without a successor
//	token     fencing token of its lease
//	acquired  beginning of its work, ms since 1970 on the server's clock
//	renewed   its last renewal, in the same unit
//	lease     duration of its lease after renewed, ms
//	metadata  Config.Metadata of the leader, a JSON object of strings
//	released  its resignation, ms; absent while it leads
//	asked     its token, after a request to resign
//	request   the operator and the reason, a JSON object
//
// The first renewal of a leader writes the record, when its work begins. A release writes released if no candidate is
// waiting. An operator writes only the last two fields. The record is for
// information: the lock alone decides who leads.
type LeaderRecord struct {
	Holder   string
	Token    uint64
	Acquired time.Time
	Renewed  time.Time
	Lease    time.Duration
	Metadata map[string]string
	Released time.Time // zero before the resignation

	// Asked is the newest request of an operator to this leader, or nil, see Election.Resign.
	Asked *ResignRequest

	// Left is the remaining time of the lease when the record was read. If it is not
	// positive, the holder no longer leads.
	Left time.Duration

	// Granted is the identity that has the lock while the holder no longer leads. Its work has not begun, or the record
	// cannot be written.
	Granted string
}

// A ResignRequest is a request of an operator that the leader resigns.
type ResignRequest struct {
	ID     string `json:"id"`               // unique
	By     string `json:"by"`               // operator, for example user@host
	Reason string `json:"reason,omitempty"` // may be empty
	To     string `json:"to,omitempty"`     // candidate of Election.TransferTo
}

// A Candidate is a replica that waits to lead.
type Candidate struct {
	Identity string `json:"identity"`
	// Since is when the candidate joined the queue or was promoted, on the server's clock.
	Since time.Time `json:"since"`
	// Promoted is true after TransferTo moved the candidate to the head of the queue.
	Promoted bool `json:"promoted,omitempty"`
}

// parseAnswer returns the record in an answer of leader_read: the time for which its leader still leads, the identity
// that has been granted the lock, and the fields of the record.
func parseAnswer(answer []any) (r LeaderRecord, err error) {
	if len(answer) > 3 {
		fields := map[string]string{}
		for i := 2; i+1 < len(answer); i += 2 {
			fields[wire.Text(answer[i])] = wire.Text(answer[i+1])
		}
		r, err = parseFields(fields)
	}
	if left, _ := answer[0].(int64); r.Token > 0 && r.Released.IsZero() {
		r.Left = max(0, time.Duration(left)*time.Millisecond)
	}
	r.Granted = wire.Text(answer[1])
	return r, err
}

// errSpoilt means that a field of a record cannot be read. The next leader replaces the record.
var errSpoilt = errors.New("election: spoilt leader record")

func parseFields(fields map[string]string) (LeaderRecord, error) {
	r := LeaderRecord{Holder: fields["holder"]}
	if v, err := strconv.Atoi(cmp.Or(fields["v"], "1")); err != nil || v > 1 {
		return r, ErrNewerSchema
	}
	var errs [7]error
	var lease int64
	r.Token, errs[0] = strconv.ParseUint(fields["token"], 10, 64)
	r.Acquired, errs[1] = wire.Instant(fields["acquired"])
	r.Renewed, errs[2] = wire.Instant(fields["renewed"])
	lease, errs[3] = strconv.ParseInt(fields["lease"], 10, 64)
	r.Lease = time.Duration(lease) * time.Millisecond
	errs[4] = json.Unmarshal([]byte(cmp.Or(fields["metadata"], "{}")), &r.Metadata)
	r.Released, errs[5] = wire.Instant(fields["released"])
	if asked := fields["asked"]; asked != "" && asked == fields["token"] {
		r.Asked = &ResignRequest{}
		errs[6] = json.Unmarshal([]byte(fields["request"]), r.Asked)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("%w: %w", errSpoilt, err)
	}
	return r, nil
}

// sameTerm reports whether two records describe the same state of the same term, with the same
// request. The servers of a quorum have different times of its end.
func (r LeaderRecord) sameTerm(o LeaderRecord) bool {
	request := func(r LeaderRecord) string {
		if r.Asked == nil {
			return ""
		}
		return r.Asked.ID
	}
	return r.Token == o.Token && r.Holder == o.Holder && r.Released.IsZero() == o.Released.IsZero() &&
		request(r) == request(o)
}

// olderThan reports whether the other record has a later term, the end of the same term, or a later renewal.
func (r LeaderRecord) olderThan(o LeaderRecord) bool {
	return cmp.Or(cmp.Compare(r.Token, o.Token), r.Released.Compare(o.Released), r.Renewed.Compare(o.Renewed)) < 0
}

// leftOf returns Left if the other record describes the same leadership, otherwise 0.
func (r LeaderRecord) leftOf(o LeaderRecord) time.Duration {
	if r.Token != o.Token || !o.Released.IsZero() {
		return 0
	}
	return r.Left
}

// A newestRecord is the newest record that an Election has read from a quorum. It keeps reads from going back when the
// servers of the newest record do not answer, and another server has lost its data.
type newestRecord struct {
	mu     sync.Mutex
	record LeaderRecord
	readAt time.Duration // by lock.Client.Elapsed
}

// latest returns the given record, or the stored one if that is newer. now is the time of the read.
func (n *newestRecord) latest(r LeaderRecord, now time.Duration) LeaderRecord {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Token < n.record.Token || r.Token == n.record.Token && !n.record.Released.IsZero() {
		old := n.record
		old.Left = max(0, old.Left-(now-n.readAt))
		return old
	}
	n.record, n.readAt = r, now
	return r
}
