package lockcore

import (
	"context"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/wire"
)

// A topology has what differs between a server that decides alone, also in a cluster or behind
// Sentinels, and the servers of a quorum. New and NewQuorum choose it.
type topology interface {
	// kind is the kind of a Mutex.
	kind() queueKind
	// refusal returns a *ConfigError if there are no leases of a kind with these terms.
	refusal(k kind, terms *leaseTerms) error
	// one returns a *ConfigError if what needs one server that decides.
	one(what string) error
	// scripts returns those of a Mutex.
	scripts() []*wire.Script

	// ready waits until a request can be answered.
	ready(ctx context.Context) error
	// confirm makes a grant valid.
	confirm(ctx context.Context, a *attempt, r acquireReply, timeout time.Duration) (acquireReply, error)
	// wait acquires a lock when it is free. It also returns the last answer.
	wait(ctx context.Context, m *Mutex) (*Lease, acquireReply, error)
	// counted returns a renewal of a package above whose answer is 1 or 0.
	counted(a *attempt, r wire.Request) wire.Request
	// lossOf returns why the server no longer has an attempt: ErrLeaseLost or a *ForcedError.
	lossOf(ctx context.Context, a *attempt) error
	inspect(ctx context.Context, name string) (Inspection, error)

	// quorum returns what the packages above need of a quorum, nil for one server.
	quorum() *engine.Quorum
	// drain waits for the requests that undo others.
	drain(ctx context.Context)
}

// alone is the topology of New: of a name, one server decides.
type alone struct{ c *Client }

func (alone) kind() queueKind { return mutexKind{} }

func (alone) refusal(kind, *leaseTerms) error { return nil }

func (alone) one(string) error { return nil }

func (t alone) scripts() []*wire.Script {
	s := t.c.scripts
	return []*wire.Script{s.mutexAcquire, s.mutexRenew, s.mutexLeave}
}

func (alone) ready(context.Context) error { return nil }

func (alone) confirm(_ context.Context, _ *attempt, r acquireReply, _ time.Duration) (acquireReply, error) {
	return r, nil
}

func (alone) wait(ctx context.Context, m *Mutex) (*Lease, acquireReply, error) {
	return m.waitInQueue(ctx)
}

func (alone) counted(_ *attempt, r wire.Request) wire.Request { return r }

// lossOf waits for the server for at most 5 % of the TTL, or 100 ms if that is less.
func (t alone) lossOf(ctx context.Context, a *attempt) error {
	within := min(a.terms.ttl/20, 100*time.Millisecond)
	answer, err := t.c.wire.Send(ctx, a.keys.name, wire.Command("hget", a.keys.forced, a.value), within)
	who, why, forced := strings.Cut(wire.Text(answer), "\n")
	if err != nil || !forced {
		return ErrLeaseLost
	}
	return &ForcedError{By: who, Reason: why}
}

func (t alone) inspect(ctx context.Context, name string) (Inspection, error) {
	seen, err := t.c.inspect(ctx, name)
	if err != nil {
		return Inspection{}, err
	}
	return seen.Inspection, nil
}

func (alone) quorum() *engine.Quorum { return nil }

func (alone) drain(context.Context) {}
