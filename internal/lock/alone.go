package lock

import (
	"context"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// alone is the topology of New: of a name, one server decides.
type alone struct{ c *Client }

func (alone) kind(k mutexKind) Kind { return k }

func (alone) refusal(Kind, *leaseTerms) error { return nil }

func (alone) trail() *several.Trail { return nil }

func (alone) ready(_ context.Context, within time.Duration) (time.Duration, error) {
	return within, nil
}

func (alone) confirm(_ context.Context, _ *Attempt, r acquireReply, _ time.Duration) (acquireReply, error) {
	return r, nil
}

// lossOf waits for the server for at most 5 % of the TTL, or 100 ms if that is less.
func (t alone) lossOf(ctx context.Context, a *Attempt) error {
	within := min(a.terms.ttl/20, 100*time.Millisecond)
	forced := a.keys.key("forced")
	answer, err := t.c.wire.Send(ctx, a.keys.name, wire.Command("hget", forced, a.value).On(forced), within)
	who, why, known := strings.Cut(wire.Text(answer), "\n")
	if err != nil || !known {
		return ErrLeaseLost
	}
	return &ForcedError{By: who, Reason: why}
}
