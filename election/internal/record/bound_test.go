package record_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every call to a quorum returns within its bound. The tests of package election have one server.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBoundedOnAQuorum(t, func(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
		const lease = 3 * time.Second
		const two3 = 2 * lease / 3
		el := election(e, c, record.Config{Lease: testenv.TTL(lease)})
		led, err := el.Campaign(e.Context())
		testenv.Must(e, err)
		add("Campaign", time.Second, e.Within(func(ctx context.Context) { _, _ = el.Campaign(ctx) }))
		add("Leader", two3, func(ctx context.Context) { _, _ = el.Leader(ctx) })
		add("Candidates", two3, func(ctx context.Context) { _, _ = el.Candidates(ctx) })
		add("Ask", two3, func(ctx context.Context) { _ = el.Ask(ctx, led.Token(), lockcore.Operator{}, "") })
		add("Leadership.Promote", two3, func(ctx context.Context) { _, _ = led.Promote(ctx, "x") })
		add("Leadership.Resign", lease, func(ctx context.Context) { _ = led.Resign(ctx) })
	})
}
