package lockcore

import (
	"context"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
)

// This file makes a council the topology of NewQuorum.

func (k *council) kind() queueKind { return quorumKind{of: k} }

func (k *council) refusal(of kind, terms *leaseTerms) error {
	if _, owned := of.(ownedKind); owned {
		return &ConfigError{Field: "the Client of a lock with owners", Value: "of NewQuorum", Rule: "of New: entries of owners cannot be counted across servers"}
	}
	switch {
	case terms.replicas > 0:
		return refuse("LeaseConfig.MinReplicas", "0 for a Client of NewQuorum, whose servers have no replicas", terms.replicas)
	case terms.ttl > k.longest:
		return refuse("LeaseConfig.TTL", "at most QuorumConfig.MaxTTL ("+k.longest.String()+")", terms.ttl)
	}
	return nil
}

func (k *council) one(what string) error {
	return &ConfigError{Field: "the Client of " + what, Value: "of NewQuorum", Rule: "of New: the servers of a quorum have different views; use New with one of them"}
}

func (k *council) scripts() []*wire.Script {
	s := k.c.scripts
	return []*wire.Script{s.quorumAcquire, s.quorumRenew, s.quorumLeave, s.quorumState, s.quorumJoin}
}

func (k *council) wait(ctx context.Context, m *Mutex) (*Lease, acquireReply, error) {
	return m.waitByTrying(ctx)
}

func (k *council) counted(a *attempt, r wire.Request) wire.Request {
	return r.Counted(countRenewal(r), &a.trail)
}

// lossOf: there is no ForceRelease.
func (k *council) lossOf(context.Context, *attempt) error { return ErrLeaseLost }

func (k *council) quorum() *engine.Quorum { return &engine.Quorum{Marker: k.marker, List: k.name} }

func (k *council) drain(ctx context.Context) { k.wire.Drain(ctx) }
