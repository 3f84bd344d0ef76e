package election

import (
	"context"
	"fmt"
	"strings"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// Names returns the names of the elections that have a leader or had one within the last week,
// sorted. The cost and the limits are those of lockcore's Client.Locks.
func Names(ctx context.Context, client *lockcore.Client, cfg lockcore.ListConfig) ([]string, error) {
	if client == nil {
		return nil, &ConfigError{Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	names, err := (*lock.Client)(client).Search(ctx, lock.Search{Prefix: lock.ElectionNames, Parts: record.Parts(), Progress: cfg.Progress})
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], lock.ElectionNames)
	}
	if err != nil {
		return names, fmt.Errorf("election: list elections: %w", err)
	}
	return names, nil
}

// An Election is a handle on an election, in any process, whether or not it campaigns. It has
// no state and is safe for concurrent use. If the server does not answer, Record and Candidates
// return an error after at most 7 s.
type Election struct {
	election *record.Election
	by       lockcore.Operator // see By
}

// NewElection returns a handle on the election of a name. It sends no request. The error is a
// *ConfigError.
func NewElection(client *lockcore.Client, name string) (*Election, error) {
	if client == nil {
		return nil, &ConfigError{Field: "client", Value: "nil", Rule: "a *lockcore.Client"}
	}
	e, err := record.New(client, name, record.Config{})
	if err != nil {
		return nil, translate(err)
	}
	return &Election{election: e}, nil
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.election.Name() }

// Record reads the election's record from the server, as LeaderElector.Record does.
func (e *Election) Record(ctx context.Context) (LeaderRecord, error) {
	r, err := e.election.Leader(ctx)
	return LeaderRecord(r), err
}

// Candidates returns the candidates, next leader first, as LeaderElector.Candidates does.
func (e *Election) Candidates(ctx context.Context) ([]Candidate, error) {
	waiters, err := e.election.Candidates(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Candidate, len(waiters))
	for i, w := range waiters {
		all[i] = Candidate(w)
	}
	return all, nil
}
