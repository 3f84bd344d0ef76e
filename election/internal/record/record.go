package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Record is an election.LeaderRecord, which documents the fields and the hash that stores them.
// Both types have the same fields, so that one is converted to the other.
type Record struct {
	Holder   string
	Token    uint64
	Term     uint64
	Acquired time.Time
	Renewed  time.Time
	Lease    time.Duration
	Metadata map[string]string
	Released time.Time
	Asked    *Request
	Left     time.Duration // Watch does not set it
}

// ErrNewerSchema means that a newer release wrote the record with a schema that this
// release does not support.
var ErrNewerSchema = errors.New("election: stored data has a newer schema than this version supports")

// Leader reads the record. It is the zero value if nobody has led for a week.
func (e *Election) Leader(ctx context.Context) (Record, error) {
	r, err := e.store.look(ctx)
	if err != nil {
		return Record{}, opError("leader", e.name, err)
	}
	return r, nil
}

// fieldsOf reads an answer of HGETALL.
func fieldsOf(answer []any) map[string]string {
	fields := make(map[string]string, len(answer)/2)
	for i := 0; i+1 < len(answer); i += 2 {
		fields[wire.Text(answer[i])] = wire.Text(answer[i+1])
	}
	return fields
}

func checkSchema(fields map[string]string) error {
	if v, err := strconv.Atoi(cmp.Or(fields["v"], "1")); err != nil || v > 1 {
		return ErrNewerSchema
	}
	return nil
}

func readLeader(fields map[string]string) (Record, error) {
	r := Record{Holder: fields["holder"]}
	var errs [8]error
	var lease int64
	r.Token, errs[0] = strconv.ParseUint(fields["token"], 10, 64)
	r.Term, errs[1] = strconv.ParseUint(fields["term"], 10, 64)
	r.Acquired, errs[2] = wire.Instant(fields["acquired"])
	r.Renewed, errs[3] = wire.Instant(fields["renewed"])
	lease, errs[4] = strconv.ParseInt(fields["lease"], 10, 64)
	r.Lease = time.Duration(lease) * time.Millisecond
	errs[5] = json.Unmarshal([]byte(cmp.Or(fields["metadata"], "{}")), &r.Metadata)
	r.Released, errs[6] = wire.Instant(fields["released"])
	errs[7] = r.readRequest(fields)
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("election: leader record: %w", err)
	}
	return r, nil
}

// sameLead reports whether two records describe the same state of the same term, with the same
// request. The servers of a quorum have different times of its end.
func (r Record) sameLead(o Record) bool {
	return r.Token == o.Token && r.Holder == o.Holder && r.Term == o.Term && r.Released.IsZero() == o.Released.IsZero() &&
		r.request() == o.request()
}
