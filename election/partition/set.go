package partition

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Set is a handle on a set of partitions, in any process, whether or not the process leads some of them. It is safe
// for concurrent use.
type Set struct {
	needs
	name  string
	lock  *lock.Name
	share *wire.Script

	// docs/ARCHITECTURE.md, "Keys", describes the keys. The key fence belongs to lockcore.
	parts, fence string
	channel      string
}

// A Partition is the state of a partition at the server.
type Partition struct {
	Index  int    `json:"index"`            // from 0
	Token  uint64 `json:"token,omitempty"`  // of its newest leader; 0 before the first one
	Leader string `json:"leader,omitempty"` // identity of the leader, or empty
}

// NewSet returns a handle on the set of a name. It sends no request. The error is a *noonlock.ConfigError, also on a
// Client of lockcore.NewQuorum.
func NewSet(client *lockcore.Client, name string) (*Set, error) { return newSet(client, name, nil) }

func newSet(client *lockcore.Client, name string, cfg *lock.LeaseConfig) (*Set, error) {
	if client == nil {
		return nil, errNoClient
	}
	if rule := input.Fault(name, 200-len(lock.ElectionNames), true); rule != "" {
		return nil, refusal("name", input.Quote(name), rule)
	}
	c := lock.Of(client)
	if err := c.RequireOneServer("a set of partitions"); err != nil {
		return nil, err
	}
	n, err := c.Name(lock.ElectionNames+name, cfg)
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		return nil, refusal(strings.Replace(refused.Field, "LeaseConfig.TTL", "Config.LeaseDuration", 1), refused.Value, refused.Rule)
	}
	var share *wire.Script
	if err == nil {
		share, err = ownScript()
	}
	if err != nil {
		return nil, fmt.Errorf("partition: %w", err)
	}
	return &Set{name: name, lock: n, share: share, parts: n.Key("parts"), fence: n.Key("fence"), channel: n.Channel("parts", name)}, nil
}

var errNoClient = refusal("client", "nil", "a *lockcore.Client")

func refusal(field, value, rule string) error {
	return &noonlock.ConfigError{Package: "partition", Field: field, Value: value, Rule: rule}
}

// Partitions returns the partitions of the set, and none if no live replica shares them. A dead replica is a
// leader until its lease ends.
func (s *Set) Partitions(ctx context.Context) ([]Partition, error) {
	request := s.share.Call(wire.Keys(s.parts), "", "read", 0, 0, 0, "", "").Large()
	reply, err := s.lock.Ask(ctx, request)
	rows, _ := reply.([]any)
	scores := map[string]int64{}
	leaders := map[int64]string{} // by session
	n := 0
	for i := 0; i+1 < len(rows); i += 2 {
		member := wire.Text(rows[i])
		value, err := strconv.ParseFloat(wire.Text(rows[i+1]), 64)
		if err != nil {
			return nil, s.opError("read", request.OddReply(reply))
		}
		scores[member] = int64(value)
		if attempt, ok := strings.CutPrefix(member, "m"); ok {
			stored, _ := lock.ReadValue(attempt)
			leaders[int64(-value)] = stored.Identity
		} else if _, err := strconv.Atoi(member); err == nil {
			n++
		}
	}
	all := make([]Partition, n)
	for i := range all {
		p := strconv.Itoa(i)
		all[i] = Partition{i, uint64(-scores["t"+p]), leaders[scores[p]]} //nolint:gosec // not negative
	}
	return all, s.opError("read", err)
}

// opError returns the errors with the operation and the name of the set, or nil.
func (s *Set) opError(op string, errs ...error) error {
	return input.Operation("partition", op, s.name, errs...)
}

// Sets returns the names of the sets that live replicas share, sorted. progress, the cost and
// the limits are as for lockcore.Locks.
func Sets(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	if client == nil {
		return nil, errNoClient
	}
	names, err := lock.Of(client).Search(ctx, lock.Search{Prefix: lock.ElectionNames, Parts: []string{"parts"}, Progress: progress})
	if err != nil {
		return names, fmt.Errorf("partition: list sets: %w", err)
	}
	return names, nil
}

type needs = lock.Declared[rights]

type rights struct{} // declares what partitions need on a server

func (rights) Needs() lock.Needs {
	return lock.Needs{
		Prefix:   lock.ElectionNames,
		Parts:    map[string]lock.KeyPart{"parts": {Types: []string{"zset"}}},
		Channels: []string{"parts"},
		Commands: []string{"HGET"}, // reads the operator of a forced release
		Scripts: func(quorum bool) ([]*wire.Script, error) {
			if quorum {
				return nil, lock.OneServerError("a set of partitions")
			}
			share, err := ownScript()
			return []*wire.Script{share}, err
		},
	}
}

//go:embed lua/*.lua
var luaFiles embed.FS

// ownScript loads the script once, for all Clients.
var ownScript = sync.OnceValues(func() (*wire.Script, error) { return load(luaFiles) })

func load(files fs.FS) (*wire.Script, error) {
	l := wire.NewLoader(files)
	return l.Script("parts_share"), l.Err()
}
