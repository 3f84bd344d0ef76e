package record

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// An Election is a lock whose holder leads. A record, which any client can read and watch,
// names the leader. Candidates wait in the lock's queue, with the guarantees of
// lockcore.Mutex.Lock.
//
// It is safe for concurrent use. On one server it is a handle without state.
type Election struct {
	lock     *lock.Name
	scripts  *scripts
	name     string
	keys     keys
	watched  *observers
	metadata map[string]string
	encoded  string // metadata as JSON
	store    store
}

// A store keeps the record: on one server, or on those of a quorum.
type store interface {
	// ready returns an error if the record cannot be read.
	ready(ctx context.Context) error
	look(ctx context.Context) (Record, error)
	// claim writes the record of a new term.
	claim(ctx context.Context, l *Leadership, k *termLease) error
	// renewal returns the request that renews the lease and the record.
	renewal(a *lock.Attempt, now *led) wire.Request
	// vacate sends the request that ends a term in the record, once.
	vacate(ctx context.Context, r wire.Request) error
	// remember takes a record that this process has written.
	remember(r Record)
	// list lists a candidate that waits, until stop is called.
	list() (stop func())
	candidates(ctx context.Context) ([]lock.Waiter, error)
	// ordered reports whether the candidates have an order, and the leader can be asked.
	ordered() bool
}

// Config configures a candidate. All candidates should use the same Lease times.
type Config struct {
	// Lease is the lease of the leader. Its Identity is the candidate's.
	Lease lockcore.LeaseConfig

	// Metadata is stored in the record while the candidate leads: an address, a version. At
	// most 4096 bytes as JSON; no secrets.
	Metadata map[string]string
}

const maxMetadata = 4096

// New returns the election of a name: 1 to 191 bytes of UTF-8 without control
// characters, spaces and braces. It sends nothing. The error is a *lockcore.ConfigError.
func New(c *lockcore.Client, name string, cfg Config) (*Election, error) {
	if rule := input.Fault(name, 200-len(lock.ElectionNames), true); rule != "" {
		return nil, &lockcore.ConfigError{Field: "name", Value: input.Quote(name), Rule: rule}
	}
	n, err := (*lock.Client)(c).Name(lock.ElectionNames+name, lock.LeaseConfig(cfg.Lease))
	if err != nil {
		return nil, err
	}
	s, err := ownScripts()
	if err != nil {
		return nil, err
	}
	encoded := []byte("{}")
	if len(cfg.Metadata) > 0 {
		if encoded, err = json.Marshal(cfg.Metadata); err != nil {
			return nil, fmt.Errorf("election: Config.Metadata: %w", err)
		}
	}
	if len(encoded) > maxMetadata {
		return nil, &lockcore.ConfigError{Field: "Config.Metadata", Value: fmt.Sprint(len(encoded), " bytes"), Rule: "at most 4096 bytes as JSON"}
	}
	n.Client().Expect(label)
	el := &Election{
		lock: n, scripts: s, name: name, keys: keysOf(n, name), watched: observersOf(n.Client()),
		metadata: maps.Clone(cfg.Metadata), encoded: string(encoded),
	}
	el.store = server{el}
	if q := n.Client().Quorum(); q != nil {
		el.store = &quorum{e: el, of: q}
	}
	return el, nil
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Identity returns the name that this candidate campaigns under.
func (e *Election) Identity() string { return e.lock.Identity() }

// list runs a script that returns a list.
func (e *Election) list(ctx context.Context, r wire.Request) ([]any, error) {
	answer, err := e.lock.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok {
		return nil, r.OddReply(answer)
	}
	return list, nil
}

// opError wraps errors with the operation and the name of the election. It returns nil if
// there is none.
func opError(op, name string, errs ...error) error {
	return input.Operation("election", op, name, errs...)
}
