package election

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// An Election is a handle on an election, in any process, whether or not it campaigns. It is safe
// for concurrent use.
type Election struct {
	needs
	client   *lockcore.Client
	lock     *lock.Name
	scripts  *scripts
	name     string
	keys     keys
	watches  *watches
	metadata string // JSON
	store    store
}

// A store keeps the record: on one server, or on those of a quorum.
type store interface {
	look(ctx context.Context) (LeaderRecord, error)
	// renewal returns the request that renews the lease and the record. age (ms) is the time since the work began.
	renewal(a *lock.Attempt, token uint64, age int64) wire.Request
}

// NewElection returns a handle on the election of a name. It sends no request. The error is a
// *noonlock.ConfigError.
func NewElection(client *lockcore.Client, name string) (*Election, error) {
	return newElection(client, name, nil, nil)
}

// newElection returns an election. Candidates have leases. All should use the same durations.
func newElection(client *lockcore.Client, name string, cfg *lockcore.LeaseConfig, metadata map[string]string) (*Election, error) {
	if client == nil {
		return nil, errNoClient
	}
	if rule := input.Fault(name, 200-len(lock.ElectionNames), true); rule != "" {
		return nil, &noonlock.ConfigError{Package: "election", Field: "name", Value: input.Quote(name), Rule: rule}
	}
	c := lock.Of(client)
	n, err := c.Name(lock.ElectionNames+name, (*lock.LeaseConfig)(cfg))
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		field := strings.NewReplacer("LeaseConfig.TTL", "Config.LeaseDuration", "LeaseConfig.", "Config.").Replace(refused.Field)
		return nil, &noonlock.ConfigError{Package: "election", Field: field, Value: refused.Value, Rule: refused.Rule}
	}
	var s *scripts
	if err == nil {
		s, err = ownScripts()
	}
	encoded := []byte("{}")
	if err == nil && len(metadata) > 0 {
		encoded, err = json.Marshal(metadata)
	}
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	if len(encoded) > maxMetadata {
		return nil, &noonlock.ConfigError{Package: "election", Field: "Config.Metadata", Value: fmt.Sprint(len(encoded), " bytes"), Rule: "at most 4096 bytes as JSON"}
	}
	c.Expect(label)
	e := &Election{
		client: client, lock: n, scripts: s, name: name, metadata: string(encoded),
		keys: keys{
			lock: n.Key("lock"), leader: n.Key("leader"), terms: n.Key("terms"), channel: n.Channel("leader", name),
		},
		watches: c.Shared(watchesKey{}, func() any { return &watches{all: map[string]*watch{}} }).(*watches),
	}
	e.store = server{e}
	if q := c.Quorum(); q != nil {
		e.store = &quorum{e: e, of: q}
	}
	return e, nil
}

const maxMetadata = 4096

// Record reads the election's record from the server: the leader and its token.
// It is the zero value if no replica has led for a week.
func (e *Election) Record(ctx context.Context) (LeaderRecord, error) {
	r, err := e.store.look(ctx)
	if err != nil {
		return LeaderRecord{}, e.failed("leader", err)
	}
	return r, nil
}

// Candidates returns the candidates, next leader first, without the leader. One that died
// is listed for up to 3.3 LeaseDurations, or 3.3 s if that is longer. On a Client of lockcore.NewQuorum,
// which has no queue, the error is a *noonlock.ConfigError.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	err := e.one("Candidates", "the candidates on several servers have no queue")
	var seen lockcore.Inspection
	if err == nil {
		seen, err = e.client.Inspect(ctx, e.lock.Name())
	}
	if err != nil {
		return nil, e.failed("candidates", err)
	}
	all := []Candidate{}
	for _, w := range seen.Waiters {
		if w.Alive && w.Identity != "" { // otherwise another program wrote it
			all = append(all, Candidate{Identity: w.Identity, Since: w.Since, Promoted: w.Promoted})
		}
	}
	return all, nil
}

// one returns an error if the election is on several servers.
func (e *Election) one(what, rule string) error {
	if e.lock.Client().Quorum() == nil {
		return nil
	}
	return &noonlock.ConfigError{Package: "election", Field: "the Client of " + what, Value: "of NewQuorum", Rule: "of New: " + rule}
}

// failed wraps errors with the operation and the name of the election. It returns nil if there is
// none.
func (e *Election) failed(op string, errs ...error) error {
	return input.Operation("election", op, e.name, errs...)
}

// Elections returns the names of the elections that have a leader or had one within the last week,
// sorted. progress, the cost and the limits are those of lockcore.Locks.
func Elections(ctx context.Context, client *lockcore.Client, progress func(keys int)) ([]string, error) {
	if client == nil {
		return nil, errNoClient
	}
	names, err := lock.Of(client).Search(ctx, lock.Search{Prefix: lock.ElectionNames, Parts: []string{"lock", "leader"}, Progress: progress})
	if err != nil {
		return names, fmt.Errorf("election: list elections: %w", err)
	}
	return names, nil
}

// keys are the keys and the channel of an election's record. All keys belong to one name, election/<name>.
// docs/ARCHITECTURE.md, "Keys", describes them. lock is lockcore's.
type keys struct{ lock, leader, terms, channel string }

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the only requests that change the record, beside the releases of the lock.
type scripts struct {
	renew, look, resign *wire.Script
	keep, view          *wire.Script // on a quorum
}

// ownScripts loads the scripts once, for all Clients.
var ownScripts = sync.OnceValues(func() (*scripts, error) { return load(luaFiles) })

func load(files fs.FS) (*scripts, error) {
	l := wire.NewLoader(files)
	s := &scripts{
		renew: l.Script("leader_renew"), look: l.Script("leader_look"), resign: l.Script("leader_resign"),
		keep: l.Script("leader_keep"), view: l.Script("leader_view"),
	}
	return s, l.Err()
}
