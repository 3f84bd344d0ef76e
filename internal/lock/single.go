package lock

import (
	"context"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// singleTopology is the topology of New: one server decides about a name.
type singleTopology struct{ c *Client }

func (singleTopology) kind(record, channel string) Kind { return mutexKind{record, channel} }

func (singleTopology) refusal(Kind, *leaseTerms) error { return nil }

func (singleTopology) trail() *several.Trail { return nil }

func (singleTopology) ready(_ context.Context, within time.Duration) (time.Duration, error) {
	return within, nil
}

func (singleTopology) confirm(_ context.Context, _ *Attempt, r acquireReply, _ time.Duration) (acquireReply, error) {
	return r, nil
}

// lossReason waits for the server for at most 5 % of the TTL, or 100 ms if that is less.
func (t singleTopology) lossReason(ctx context.Context, a *Attempt) error {
	within := min(a.terms.ttl/20, 100*time.Millisecond)
	forced := a.keys.key("forced")
	answer, err := t.c.wire.Send(ctx, a.keys.name, wire.Command("hget", forced, a.value).On(forced), within)
	by, reason, found := strings.Cut(wire.Text(answer), "\n")
	if err != nil || !found {
		return ErrLeaseLost
	}
	return &ForcedError{By: by, Reason: reason}
}
