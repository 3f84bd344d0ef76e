package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A Thing is the state of a name in Redis.
type Thing struct {
	Kind Kind
	Name string

	// Now is the time of the server. For sets, elections without a leader, and locks of a quorum, Now is the time of
	// this machine.
	Now time.Time

	// Only the one of these fields that belongs to Kind is set.
	Election Election
	Set      Set
	Job      *singleton.Status // nil without a ledger
	Lock     lockcore.Inspection
}

// An Election is the JSON of an election.
type Election struct {
	Name       string                  `json:"name"`
	Leader     string                  `json:"leader,omitempty"`
	Last       string                  `json:"last_leader,omitempty"`
	Granted    string                  `json:"granted,omitempty"` // holder that does not lead yet
	Token      uint64                  `json:"token,omitempty"`
	Acquired   time.Time               `json:"acquired,omitzero"`
	Renewed    time.Time               `json:"renewed,omitzero"`
	Released   time.Time               `json:"released,omitzero"`
	Lease      int64                   `json:"lease_ms,omitempty"` // duration from a renewal to the end
	Left       int64                   `json:"left_ms,omitempty"`  // time until the end
	Metadata   map[string]string       `json:"metadata,omitempty"`
	Asked      *election.ResignRequest `json:"asked,omitempty"`
	Candidates []election.Candidate    `json:"candidates"`
}

// A Set is the JSON of a set of partitions.
type Set struct {
	Name       string                `json:"name"`
	Replicas   []Share               `json:"replicas"` // replicas that lead, sorted
	Partitions []partition.Partition `json:"partitions"`
}

// A Share is the number of partitions that a replica leads.
type Share struct {
	Identity string `json:"identity"` // empty for partitions without a leader
	Leads    int    `json:"leads"`
}

func (t *Thing) readSet(ctx context.Context, s *partition.Set) (err error) {
	t.Now = time.Now()
	t.Set = Set{Name: t.Name, Replicas: []Share{}}
	t.Set.Partitions, err = s.Partitions(ctx)
	leads := map[string]int{}
	for _, p := range t.Set.Partitions {
		leads[p.Leader]++
	}
	for _, identity := range slices.Sorted(maps.Keys(leads)) {
		t.Set.Replicas = append(t.Set.Replicas, Share{identity, leads[identity]})
	}
	return err
}

// Read reads the thing of a name, which need not exist.
func (k Kind) Read(ctx context.Context, client *lockcore.Client, name string) (Thing, error) {
	t := Thing{Kind: k, Name: name}
	switch k {
	case Elections:
		e, err := election.NewElection(client, name)
		if err != nil {
			return t, err
		}
		return t, t.readElection(ctx, e)
	case Partitions:
		s, err := partition.NewSet(client, name)
		if err != nil {
			return t, err
		}
		return t, t.readSet(ctx, s)
	case Jobs:
		j, err := singleton.NewJob(client, name)
		if err != nil {
			return t, err
		}
		st, err := j.Status(ctx)
		if errors.Is(err, singleton.ErrNoLedger) {
			return t, nil
		}
		t.Job, t.Now = &st, st.Now
		return t, err
	default:
		seen, err := client.Inspect(ctx, name)
		t.Lock, t.Now = seen, cmp.Or(seen.Now, time.Now())
		return t, err
	}
}

func (t *Thing) readElection(ctx context.Context, e *election.Election) error {
	r, err := e.Record(ctx)
	if err != nil {
		return err
	}
	t.Now = time.Now()
	t.Election = Election{
		Name: t.Name, Granted: r.Granted, Token: r.Token, Acquired: r.Acquired, Renewed: r.Renewed, Released: r.Released,
		Metadata: r.Metadata, Asked: r.Asked, Candidates: []election.Candidate{}, // not null
	}
	if r.Left > 0 {
		t.Now = r.Renewed.Add(r.Lease - r.Left)
		t.Election.Leader, t.Election.Lease, t.Election.Left = r.Holder, r.Lease.Milliseconds(), r.Left.Milliseconds()
	} else {
		t.Election.Last = r.Holder
	}
	candidates, err := e.Candidates(ctx)
	if errors.Is(err, noonlock.ErrConfig) {
		err = nil // the candidates on several servers have no queue
	}
	t.Election.Candidates = append(t.Election.Candidates, candidates...)
	return err
}

// Left returns the time until the lease of the leader or the holder ends unless it is renewed. Without a lease, it is 0.
func (t Thing) Left() time.Duration {
	left := time.Duration(t.Election.Left) * time.Millisecond
	for _, h := range t.Lock.Holders {
		left = max(left, h.TTL)
	}
	return left
}

// Exists reports whether the thing has a state.
func (t Thing) Exists() bool {
	switch t.Kind {
	case Elections:
		return t.Election.Token > 0 || t.Election.Granted != "" || len(t.Election.Candidates) > 0
	case Jobs:
		return t.Job != nil
	case Partitions:
		return len(t.Set.Partitions) > 0
	default:
		return t.Lock.Kind != lockcore.LockFree || len(t.Lock.Waiters) > 0
	}
}

// Data returns the value for the JSON of the thing.
func (t Thing) Data() any {
	switch t.Kind {
	case Elections:
		return t.Election
	case Jobs:
		return t.Job
	case Partitions:
		return t.Set
	default:
		return t.Lock
	}
}

func (t Thing) state() Cell {
	leaderless := 0 // partitions without a leader; they sort first
	if shares := t.Set.Replicas; len(shares) > 0 && shares[0].Identity == "" {
		leaderless = shares[0].Leads
	}
	switch {
	case t.Kind == Jobs:
		return jobState(*t.Job)
	case leaderless > 0:
		return cell("state", fmt.Sprintf("%d without a leader", leaderless), "chip bad")
	case t.Election.Granted != "":
		return cell("state", "beginning", "chip")
	case t.Kind == Elections && t.Election.Leader == "":
		return cell("state", "no leader", "chip bad")
	case t.Kind == Locks:
		return cell("state", either(t.Lock.Kind == lockcore.LockFree, "free", "held"), "chip")
	}
	return cell("state", "led", "chip")
}

func jobState(st singleton.Status) Cell {
	running, canceled := 0, false
	for _, open := range st.Open {
		if open.Running {
			running++
			canceled = canceled || open.Canceled != nil
		}
	}
	var states []string
	class := "chip"
	switch {
	case running == 1:
		states, class = append(states, "running"), "chip run"
	case running > 1:
		states, class = append(states, fmt.Sprintf("running (%d)", running)), "chip run"
	case len(st.Open) > 0:
		states = append(states, fmt.Sprintf("open (%d)", len(st.Open)))
	}
	for i, is := range []bool{canceled, st.Paused, st.Replicas == 0} {
		if is {
			states, class = append(states, []string{"canceled", "paused", "no replicas"}[i]), "chip warn"
		}
	}
	return cell("state", cmp.Or(strings.Join(states, ", "), "idle"), class)
}
