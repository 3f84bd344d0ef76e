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
		bg := context.Background()
		add("Campaign", time.Second, e.Within(func(ctx context.Context) { _, _ = el.Campaign(ctx) }))
		add("Leader", two3, func() { _, _ = el.Leader(bg) })
		add("Candidates", two3, func() { _, _ = el.Candidates(bg) })
		add("Ask", two3, func() { _ = el.Ask(bg, led.Token(), record.Request{}) })
		add("Leadership.Promote", two3, func() { _, _ = led.Promote(bg, "x") })
		add("Leadership.Resign", lease, func() { _ = led.Resign(bg) })
	})
}
