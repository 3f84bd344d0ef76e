package cas

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// Errors for errors.Is. All other errors are lockcore's.
var (
	// ErrConflict means that a record was not written, since it has another version.
	ErrConflict = errors.New("clientgo: the record was changed since it was read")

	// ErrNone means that there is no record with this name.
	ErrNone = errors.New("clientgo: there is no record of that name")

	// ErrNewerSchema means that a newer release wrote the record with a schema that this release does not support.
	ErrNewerSchema = errors.New("clientgo: stored data has a newer schema than this version supports")
)

// NamePrefix is the prefix of the names of records.
const NamePrefix = "clientgo/"

// A Record is a value with a name, written by compare-and-set. It is safe for concurrent use.
type Record struct {
	lock    *lock.Name
	put     *wire.Script
	key     string // key of the string nr1 <version> <value>
	writer  string // prefix of the versions that were written through this Record
	writes  atomic.Uint64
	timeout time.Duration
}

// State is the content of a record.
type State struct {
	Value   []byte
	Version Version
	Own     bool // written through the Record that has read it
}

// New returns the record with the name NamePrefix + name. It sends nothing. A request that is not
// answered within the timeout is retried; a call returns after three timeouts.
func New(c *lockcore.Client, name string, timeout time.Duration) (*Record, error) {
	n, err := lock.Of(c).Name(NamePrefix+name, nil)
	if err == nil {
		err = n.Client().RequireOneServer("NewLock")
	}
	if err != nil {
		return nil, err
	}
	put, err := ownScript()
	if err != nil {
		return nil, err
	}
	return &Record{lock: n, put: put, key: n.Key("record"), writer: rand.Text(), timeout: timeout}, nil
}

// Get reads the record. The error is ErrNone if there is none, lockcore.ErrWrongKind if the key
// has another type, and ErrNewerSchema if a newer release wrote it.
func (r *Record) Get(ctx context.Context) (State, error) {
	answer, err := r.ask(ctx, wire.Command("get", r.key).On(r.key))
	var state State
	switch {
	case err == nil && answer == nil:
		err = ErrNone
	case err == nil:
		state, err = r.parse(wire.Text(answer))
	}
	return state, err
}

func (r *Record) parse(stored string) (State, error) {
	form, rest, _ := strings.Cut(stored, " ")
	version, value, found := strings.Cut(rest, " ")
	number, isRecord := strings.CutPrefix(form, "nr")
	if n, err := strconv.Atoi(number); !isRecord || !found || version == "" || err != nil || n < 1 {
		return State{}, lockcore.ErrWrongKind
	} else if n > 1 {
		return State{}, ErrNewerSchema
	}
	writer, _, _ := strings.Cut(version, ".")
	return State{Value: []byte(value), Version: Version{version}, Own: writer == r.writer}, nil
}

// Put writes the record if it has the version seen, which Get or an earlier Put has returned. The zero Version means
// that there is no record. keep, in whole milliseconds, is the TTL of the record after this write.
//
// The error is ErrConflict if the record has another version or was deleted. After an error
// that is lockcore.ErrUnknown, the value may have been written or may still be written. The
// returned version covers both cases, so a Put with it succeeds in either case. During
// lockcore.Config.LockDelay, a Put of the first record fails with lockcore.ErrDelayed.
func (r *Record) Put(ctx context.Context, seen Version, value []byte, keep time.Duration) (Version, error) {
	me := r.writer + "." + strconv.FormatUint(r.writes.Add(1), 36)
	req := r.put.Call(wire.Keys(r.key), me, value, keep.Milliseconds(), seen.inSpaces())
	if seen == (Version{}) {
		// If the server has lost the record, another candidate may still lead. Granting respects LockDelay.
		req = req.Granting(func(answer any) bool { return answer == int64(1) })
	}
	answer, err := r.ask(ctx, req)
	if err == nil {
		switch answer {
		case int64(1):
			return Version{me}, nil
		case int64(0):
			err = ErrConflict
		case int64(-1):
			err = ErrNewerSchema
		case int64(-2):
			err = lockcore.ErrWrongKind
		default:
			err = r.put.OddReply(answer)
		}
	}
	if wire.MayBeApplied(err) {
		seen = seen.or(me)
	}
	return seen, err
}

// ask sends an idempotent script or command, and retries it until it is answered.
func (r *Record) ask(ctx context.Context, req wire.Request) (any, error) {
	return r.lock.Client().Ask(ctx, r.lock.Name(), req, r.timeout, 3*r.timeout)
}

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScript loads the script once, for all Clients.
var ownScript = sync.OnceValues(func() (*wire.Script, error) { return load(luaFiles) })

func load(files fs.FS) (*wire.Script, error) {
	l := wire.NewLoader(files)
	put := l.Script("record_put")
	return put, l.Err()
}

const (
	// mostSeen limits the number of consecutive unanswered writes that a version covers.
	mostSeen = 64
	// noRecord is the version without a record.
	noRecord = "-"
)

// A Version is a version of a record. The zero value means that there is no record. After a write with an unknown
// outcome, it covers the versions before and after the write. All writes have different versions.
type Version struct{ seen string } // versions with spaces in between

// String returns the version for logs. It is not secret.
func (v Version) String() string { return cmp.Or(v.seen, noRecord) }

// Includes reports whether v covers all versions that o covers.
func (v Version) Includes(o Version) bool {
	for version := range strings.FieldsSeq(o.String()) {
		if !strings.Contains(v.inSpaces(), " "+version+" ") {
			return false
		}
	}
	return true
}

func (v Version) inSpaces() string { return " " + v.String() + " " }

// or returns a version that covers v and one more write.
func (v Version) or(version string) Version {
	seen := append(strings.Fields(v.String()), version)
	return Version{strings.Join(seen[max(0, len(seen)-mostSeen):], " ")} // the server least likely has the oldest
}
