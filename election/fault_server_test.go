package election_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The server restarts with an old snapshot, in which another replica leads. That replica
// does not become the leader by it. The leader loses its lease at its next renewal, and the
// election continues. (Class D: tokens from after the snapshot may be granted again.)
//
// Caught mutant: a candidate concludes from the record that it leads.
func TestFault16_OldSnapshot(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick())
		e.queueUp(a, b)
		lock, fence, rec := e.Raw.Get(e.Context(), key("lock")).Val(), e.Raw.Get(e.Context(), key("fence")).Val(), e.record()
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.queued(1)
		_, err := e.Raw.TxPipelined(e.Context(), func(p redis.Pipeliner) error {
			p.Del(e.Context(), key("lock"), key("fence"), key("leader"), key("queue"), key("seen"))
			p.Set(e.Context(), key("lock"), lock, leaseDuration)
			p.Set(e.Context(), key("fence"), fence, time.Hour)
			p.HSet(e.Context(), key("leader"), rec)
			return nil
		})
		must(e, err)
		mustIs(e, b.ended(1), lockcore.ErrLeaseLost)
		if a.le.IsLeader() {
			t.Error("it leads by the old lock")
		}
		e.Until("one replica leads", func() bool { return a.le.IsLeader() || b.le.IsLeader() })
	})
}
