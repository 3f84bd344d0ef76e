package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
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
	metadata string       // Config.Metadata as JSON
	newest   newestRecord // of the reads from a quorum
}

// NewElection returns a handle on the election of a name. It sends no request. The error is a
// *noonlock.ConfigError.
func NewElection(client *lockcore.Client, name string) (*Election, error) {
	return newElection(client, name, nil, nil)
}

// newElection returns an Election with the lease and the metadata of a candidate.
func newElection(client *lockcore.Client, name string, cfg *lock.LeaseConfig, metadata map[string]string) (*Election, error) {
	if client == nil {
		return nil, errNoClient
	}
	if rule := input.Fault(name, 200-len(lock.ElectionNames), true); rule != "" {
		return nil, refusal("name", input.Quote(name), rule)
	}
	c := lock.Of(client)
	n, err := c.Name(lock.ElectionNames+name, cfg)
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		field := strings.NewReplacer("LeaseConfig.TTL", "Config.LeaseDuration", "LeaseConfig.", "Config.").Replace(refused.Field)
		return nil, refusal(field, refused.Value, refused.Rule)
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
		return nil, refusal("Config.Metadata", fmt.Sprint(len(encoded), " bytes"), "at most 4096 bytes as JSON")
	}
	c.Expect(leaseLabel)
	return &Election{
		client: client, lock: n, scripts: s, name: name, metadata: string(encoded),
		keys: keys{
			lock: n.Key("lock"), leader: n.Key("leader"), terms: n.Key("terms"), channel: n.Channel("leader", name),
		},
	}, nil
}

// Candidates returns the candidates, next leader first, without the leader. A dead candidate
// is listed for up to 3.3 LeaseDurations, or 3.3 s if that is longer. On a Client of lockcore.NewQuorum,
// which has no queue, the error is a *noonlock.ConfigError.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	err := e.refuseQuorum("Candidates", "the candidates on several servers have no queue")
	var seen lockcore.Inspection
	if err == nil {
		seen, err = e.client.Inspect(ctx, e.lock.Name())
	}
	if err != nil {
		return nil, e.opError("candidates", err)
	}
	all := []Candidate{}
	for _, w := range seen.Waiters {
		if w.Alive && w.Identity != "" { // another program wrote a waiter without identity
			all = append(all, Candidate{Identity: w.Identity, Since: w.Since, Promoted: w.Promoted})
		}
	}
	return all, nil
}

// refuseQuorum returns an error on a Client of lockcore.NewQuorum.
func (e *Election) refuseQuorum(call, rule string) error {
	if e.lock.Client().Quorum() == nil {
		return nil
	}
	return refusal("the Client of "+call, "of NewQuorum", "of New: "+rule)
}

// opError returns the errors with the operation and the name of the election, or nil.
func (e *Election) opError(op string, errs ...error) error {
	return input.Operation("election", op, e.name, errs...)
}

// Elections returns the names of the elections that have a leader or had one within the last week,
// sorted. progress, the cost and the limits are as for lockcore.Locks.
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
