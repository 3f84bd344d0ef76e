package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// More dead waiters stand in front of a living one than one script passes over. Who
// only tries does not take the lock that is free in between.
func TestTryDoesNotPassALineOfManyDead(t *testing.T) {
	onAllKinds(t, func(e *env) {
		cfg := ttl(20 * time.Second)
		e.try(e.mutex(e.client("a"), "orders", cfg))
		living := e.inLine(e.mutex(e.client("b"), "orders", cfg))
		at := e.raw.ZRangeWithScores(e.Context(), e.key("orders", "queue"), 0, 0).Val()[0].Score
		var dead []redis.Z
		for i := range 1500 {
			dead = append(dead, redis.Z{Score: at - 2000 + float64(i), Member: fmt.Sprintf("dead-%d", i)})
		}
		must(e, e.raw.ZAdd(e.Context(), e.key("orders", "queue"), dead...).Err())
		must(e, e.raw.Del(e.Context(), e.key("orders", "lock")).Err())
		if held := e.refused(e.mutex(e.client("c"), "orders", cfg)); held.Holder != "b" {
			e.Errorf("held by %q, want the one that stood behind the dead", held.Holder)
		}
		e.unlock(living.granted())
	})
}
