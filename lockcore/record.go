package lockcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A Record is a value under a name that is written by compare-and-set: a write
// says what it has seen, and is refused if that is no longer so. It is what an
// optimistic protocol of another library needs of Redis; who only wants a leader
// or a lock is better served by package election and Mutex, which have leases and tokens.
//
// What it guarantees: of writes that have seen the same, one succeeds, also if
// requests or replies are lost, late or repeated. What it does not: that the value
// outlives a loss of the server's data; whoever reads then is told that there is
// none, and writes of those who have seen one are refused.
//
// At the server it is a string, <prefix>:{<name>}:record, to be read with GET:
// "nr1 <version> <value>". It shares its name with locks without touching them.
//
// A Record needs of an ACL no more than ~noonlock:* -@all +evalsha +eval +get +set.
//
// It is safe for concurrent use.
type Record struct {
	c       *Client
	name    string
	key     string
	writer  string // of versions: what was written through this Record
	timeout time.Duration
}

// RecordConfig is how a Record asks the server. The zero value is a working
// default.
type RecordConfig struct {
	// Timeout is how long one request may go unanswered before it is sent again;
	// a call gives up after three of them. 10 ms to 1 min. Default 1 s.
	Timeout time.Duration
}

const (
	defaultRecordTimeout = time.Second
	maxRecord            = 64 << 10
	minKeep              = time.Millisecond
	maxKeep              = 10 * 365 * 24 * time.Hour

	// maxSeen bounds how many unanswered writes in a row a version stands for.
	maxSeen = 64
	// noRecord is the version that stands for no record.
	noRecord = "-"
)

var (
	// ErrConflict says that a record was not written: it is another than what the
	// writer has seen.
	ErrConflict = errors.New("lockcore: the record was changed since it was read")

	// ErrNoRecord says that there is no record of that name.
	ErrNoRecord = errors.New("lockcore: there is no record of that name")
)

// A RecordVersion is what somebody has seen of a record. Its zero value is that
// there was none. After a write whose outcome is unknown it stands for either.
type RecordVersion struct {
	seen []string // nil: there was none
}

// all are the versions that v stands for.
func (v RecordVersion) all() []string {
	if v.seen == nil {
		return []string{noRecord}
	}
	return v.seen
}

// String tells the version, for logs and comparison: it is never the same again
// for another write, by anybody. It is no secret.
func (v RecordVersion) String() string { return strings.Join(v.all(), "|") }

// Includes reports whether v stands for all that o stands for.
func (v RecordVersion) Includes(o RecordVersion) bool {
	return !slices.ContainsFunc(o.all(), func(version string) bool { return !slices.Contains(v.all(), version) })
}

// or is v, or that write.
func (v RecordVersion) or(version string) RecordVersion {
	seen := v.all()
	// The oldest ones are the least likely to be there yet.
	return RecordVersion{append(slices.Clone(seen[max(0, len(seen)+1-maxSeen):]), version)}
}

// RecordState is a record as it was read.
type RecordState struct {
	Value   []byte
	Version RecordVersion
	Own     bool // it was written through the very Record that read it
}

// Record returns the record of a name, by the rules of a lock's name. It sends
// nothing. The error is a *ConfigError.
func (c *Client) Record(name string, cfg RecordConfig) (*Record, error) {
	if err := checkUserName(name); err != nil {
		return nil, err
	}
	timeout := cmp.Or(cfg.Timeout, defaultRecordTimeout)
	if timeout < 10*time.Millisecond || timeout > time.Minute {
		return nil, refuse("RecordConfig.Timeout", "0 (1s) or from 10ms to 1m", "%s", cfg.Timeout)
	}
	return &Record{c: c, name: name, key: c.keys.record(name), writer: rand.Text(), timeout: timeout}, nil
}

// Name is the name of the record.
func (r *Record) Name() string { return r.name }

// Get reads the record. The error is ErrNoRecord if there is none, ErrWrongKind
// if the key is something else, ErrNewerSchema if a newer release wrote it.
func (r *Record) Get(ctx context.Context) (RecordState, error) {
	const op = "lockcore: get record"
	answer, _, err := r.ask(ctx, wire.Command("get", r.key))
	var state RecordState
	switch {
	case wire.HasCode(err, "WRONGTYPE"):
		err = ErrWrongKind
	case err == nil && answer == nil:
		err = ErrNoRecord
	case err == nil:
		state, err = r.read(wire.Text(answer))
	}
	if err != nil {
		return RecordState{}, opError(op, r.name, err)
	}
	return state, nil
}

func (r *Record) read(stored string) (RecordState, error) {
	form, rest, _ := strings.Cut(stored, " ")
	version, value, found := strings.Cut(rest, " ")
	number, ours := strings.CutPrefix(form, "nr")
	if n, err := strconv.Atoi(number); !ours || !found || version == "" || err != nil || n < 1 {
		return RecordState{}, ErrWrongKind
	} else if n > 1 {
		return RecordState{}, ErrNewerSchema
	}
	writer, _, _ := strings.Cut(version, ".")
	return RecordState{
		Value: []byte(value), Version: RecordVersion{[]string{version}}, Own: writer == r.writer,
	}, nil
}

// Put writes the record if it is still what was seen: as Get or an earlier Put
// told, or, with the zero RecordVersion, if there is none. The value has at most
// 64 KiB; keep, in whole milliseconds up to ten years, is how long the record
// outlives this write.
//
// The error is ErrConflict if it is another, or there is none any more. After an
// error that is ErrUnknown the value may have been written, or may yet be: the
// version returned with it stands for what was seen before or for this write, so
// that a Put that has seen it succeeds either way.
func (r *Record) Put(ctx context.Context, seen RecordVersion, value []byte, keep time.Duration) (RecordVersion, error) {
	const op = "lockcore: put record"
	if len(value) > maxRecord {
		return seen, opError(op, r.name, refuse("value", "at most 65536 bytes", "%d bytes", len(value)))
	}
	if keep < minKeep || keep > maxKeep || keep%time.Millisecond != 0 {
		return seen, opError(op, r.name, refuse("keep", "whole milliseconds from 1ms to ten years", "%s", keep))
	}
	me := r.writer + "." + strconv.FormatUint(r.c.attempts.Add(1), 36)
	s := r.c.scripts.recordPut
	answer, unknown, err := r.ask(ctx, s.Call([]string{r.key}, me, value, millis(keep),
		" "+strings.Join(seen.all(), " ")+" "))
	if err == nil {
		switch answer {
		case int64(1):
			return RecordVersion{[]string{me}}, nil
		case int64(0):
			err = ErrConflict
		case int64(-1):
			err = ErrNewerSchema
		case int64(-2):
			err = ErrWrongKind
		default:
			err = s.OddReply(answer)
		}
	}
	if unknown {
		seen = seen.or(me)
	}
	return seen, opError(op, r.name, err)
}

// ask sends a script or command that may be repeated, until it is answered.
// unknown: the error is ErrUnknown, and it may have been applied.
func (r *Record) ask(ctx context.Context, req wire.Request) (answer any, unknown bool, err error) {
	if ctx == nil {
		return nil, false, refuse("ctx", "a context", "%s", "nil")
	}
	answer, err = r.c.request(ctx, req, r.timeout, 3*r.timeout)
	return answer, errors.Is(err, ErrUnknown), err
}
