package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// More dead waiters than one script passes over are queued before a live one. A try does
// not take the lock that is free in the meantime.
func TestTryDoesNotPassAQueueOfManyDead(t *testing.T) {
	onAllKinds(t, func(e *env) {
		cfg := ttl(20 * time.Second)
		e.try(e.mutex(e.Client("a"), "orders", cfg))
		living := e.queued(e.mutex(e.Client("b"), "orders", cfg))
		at := e.Raw.ZRangeWithScores(e.Context(), e.key("orders", "queue"), 0, 0).Val()[0].Score
		var dead []redis.Z
		for i := range 1500 {
			dead = append(dead, redis.Z{Score: at - 2000 + float64(i), Member: fmt.Sprintf("dead-%d", i)})
		}
		must(e, e.Raw.ZAdd(e.Context(), e.key("orders", "queue"), dead...).Err())
		must(e, e.Raw.Del(e.Context(), e.key("orders", "lock")).Err())
		if held := e.refused(e.mutex(e.Client("c"), "orders", cfg)); held.Holder != "b" {
			e.Errorf("held by %q, want the waiter behind the dead ones", held.Holder)
		}
		e.unlock(living.granted())
	})
}

// A foreign tool has deleted some keys of a lock, or the first waiter. A try acquires a
// lock of which nothing is left. Otherwise its error names one of the holders or waiters,
// with the time until the lock ends, and no foreign client.
func TestTryAfterPartsWereDeleted(t *testing.T) {
	t.Parallel()
	parts := []string{"lock", "queue", "seen"}
	for _, kind := range kinds {
		for gone := range 1 << (len(parts) + 1) {
			t.Run(fmt.Sprintf("%s/%04b", kind, gone), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(e *env) {
					e.use(kind)
					cfg := ttl(20 * time.Second)
					e.try(e.mutex(e.Client("a"), "orders", cfg))
					e.queued(e.mutex(e.Client("b"), "orders", cfg))
					e.queued(e.mutex(e.Client("c"), "orders", cfg))
					for i, part := range parts {
						if gone&(1<<i) != 0 {
							must(e, e.Raw.Del(e.Context(), e.key("orders", part)).Err())
						}
					}
					if gone&(1<<len(parts)) != 0 {
						must(e, e.Raw.ZRemRangeByRank(e.Context(), e.key("orders", "queue"), 0, 0).Err())
					}
					const lock, queue, seen = 1, 2, 4
					if gone&lock != 0 && gone&(queue|seen) != 0 {
						e.unlock(e.try(e.mutex(e.Client("d"), "orders", cfg)))
						return
					}
					holder := "a"
					if gone&lock != 0 {
						holder = "b"
						if gone&(1<<len(parts)) != 0 {
							holder = "c"
						}
					}
					if held := e.refused(e.mutex(e.Client("d"), "orders", cfg)); held.Holder != holder || held.TTL <= 0 {
						e.Errorf("it is said to be held by %q for %v, want %q", held.Holder, held.TTL, holder)
					}
				})
			})
		}
	}
}
