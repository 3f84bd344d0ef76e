package lockcore_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// The last token of a name is kept for Config.TokenRetention after the last lease. A mutex
// that is held for longer keeps it, so Inspect can report it.
//
// Caught mutants: the counter lives for a week; it ends although the mutex is renewed.
func TestTokenRetention(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		retention time.Duration
		want      time.Duration
	}{{"default", 0, 2 * time.Hour}, {"set", 30 * time.Minute, 30 * time.Minute}} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				client := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", TokenRetention: c.retention})
				m := e.mutex(client, "orders", ttl(10*time.Minute))
				e.unlock(e.try(m))
				e.Pass(c.want - time.Second)
				if !e.Exists(e.key("orders", "fence")) {
					e.Error("the counter is gone too soon")
				}
				e.Pass(2 * time.Second)
				if e.Exists(e.key("orders", "fence")) {
					e.Error("the counter is still there")
				}
				lease := e.try(m)
				e.Pass(3 * c.want)
				seen, err := client.Inspect(e.Context(), "orders")
				must(e, err)
				if len(seen.Holders) != 1 || seen.Holders[0].Token != lease.Token() {
					e.Errorf("Inspect says %+v, the token is %d", seen.Holders, lease.Token())
				}
				e.unlock(lease)
				// Also if another client serves the queue.
				lease = e.try(m)
				next := e.queued(e.mutex(client, "orders", ttl(10*time.Minute)))
				e.unlock(lease)
				second := next.granted()
				if second.Token() <= lease.Token() {
					e.Errorf("token %d after %d", second.Token(), lease.Token())
				}
				e.unlock(second)
				if left := e.Raw.PTTL(e.Context(), e.key("orders", "fence")).Val(); left > c.want {
					e.Errorf("the counter lives for %v", left)
				}
			})
		})
	}
}
