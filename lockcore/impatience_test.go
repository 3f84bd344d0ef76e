package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// overDistance returns a network whose round trips take a while, and options for a Client that uses it.
func (e *env) overDistance(roundTrip time.Duration) (*distance, *redis.Options) {
	d := new(distance)
	d.roundTrip.Store(int64(roundTrip))
	opt := e.Direct()
	near := opt.Dialer
	opt.PoolSize, opt.ReadTimeout = 300, time.Minute
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return d.dial(ctx, func() (net.Conn, error) { return near(ctx, network, addr) })
	}
	e.Cleanup(func() { time.Sleep(time.Minute) }) // the last bytes arrive
	return d, opt
}

// acquisitions counts how often callers hold a lock for a moment, each of which waits for it for a time, again and again.
func (e *env) acquisitions(callers int, wait, lasts time.Duration, acquire func(ctx context.Context, caller int) (release func())) (n int) {
	ctx, cancel := context.WithTimeout(e.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	var held atomic.Int64
	for caller := range callers {
		all.Go(func() {
			time.Sleep(rand.N(wait))
			for ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(ctx, wait)
				if release := acquire(ctx, caller); release != nil {
					held.Add(1)
					release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	return int(held.Load())
}

// polling acquires one of n keys with SET NX, and tries again after up to 10 ms.
func (e *env) polling(rdb *redis.Client, n int) func(ctx context.Context, caller int) (release func()) {
	return func(ctx context.Context, caller int) func() {
		for ctx.Err() == nil {
			key := fmt.Sprint("polled", rand.IntN(n))
			if ok, _ := rdb.SetNX(ctx, key, caller, time.Minute).Result(); ok {
				return func() { must(e, rdb.Del(e.Context(), key).Err()) }
			}
			time.Sleep(rand.N(10 * time.Millisecond))
		}
		return nil
	}
}

// More callers than places wait for little more than a handover takes, so many leave when it is their turn. The queue
// does not serve those that will have left before the grant arrives, so that the others get the lock at least half as
// often as if all of them polled. A caller that has more than three round trips left is not passed
// over by one that began more than a round trip later; before, either request may arrive first.
func TestFault137_CallersThatWaitForLittle(t *testing.T) {
	t.Parallel()
	lasts := time.Duration(testenv.Size(400, 2000)) * time.Millisecond
	for _, c := range []struct {
		callers         int
		wait, roundTrip time.Duration
	}{
		{24, 30 * time.Millisecond, 2 * time.Millisecond},
		{24, 30 * time.Millisecond, 5 * time.Millisecond},
		{24, 30 * time.Millisecond, 10 * time.Millisecond},
		{200, 250 * time.Millisecond, 2 * time.Millisecond},
	} {
		for kind, places := range map[string]int{"mutex": 1, "semaphore": 5} {
			t.Run(fmt.Sprintf("%d for %v, %v away, %s", c.callers, c.wait, c.roundTrip, kind), func(t *testing.T) {
				inBubble(t, func(e *env) {
					_, opt := e.overDistance(c.roundTrip)
					var acquire []func(context.Context) (*lockcore.Lease, error)
					for i := range 3 {
						client := e.ClientWith(opt, lockcore.Config{Identity: fmt.Sprint("client-", i)})
						e.subscribes(client, "another")
						s := call(client.Semaphore("orders", places, ttl(10*time.Second))).Must(e)
						acquire = append(acquire, s.Acquire)
						if kind == "mutex" {
							acquire[i] = e.mutex(client, "orders", ttl(10*time.Second)).Lock
						}
					}
					var mu sync.Mutex
					granted := map[time.Time]time.Time{} // when an acquisition began, and when it was granted at the latest
					got := e.acquisitions(c.callers, c.wait, lasts, func(ctx context.Context, caller int) func() {
						began := time.Now()
						lease, err := acquire[caller%3](ctx)
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							granted[began] = time.Now().Add(-c.roundTrip / 2)
							return func() { e.unlock(lease) }
						}
						mustIs(e, err, context.DeadlineExceeded)
						ends, _ := ctx.Deadline()
						for later, at := range granted {
							if left := ends.Sub(at); later.Sub(began) > c.roundTrip && left > 3*c.roundTrip {
								e.Errorf("a caller was passed over when it had another %v", left)
							}
						}
						return nil
					})
					rdb := redis.NewClient(opt)
					defer rdb.Close()
					polled := e.acquisitions(c.callers, c.wait, lasts, e.polling(rdb, places))
					t.Logf("%d times, by polling %d", got, polled)
					if 2*got < polled {
						e.Errorf("acquired %d times, by polling %d times", got, polled)
					}
				})
			})
		}
	}
}

// A request was slow, so a caller that waits for little more than that seems to have no time left for a grant. The
// next reply shows that round trips are short again, and the caller queues.
func TestFault137_ARoundTripThatWasSlowOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		d, opt := e.overDistance(2 * time.Millisecond)
		c := e.ClientWith(opt, lockcore.Config{})
		e.subscribes(c, "another")
		held := e.try(e.mutex(e.Client("holder"), "orders", ttl(10*time.Second)))
		d.roundTrip.Store(int64(400 * time.Millisecond))
		call(e.mutex(c, "orders", lockcore.LeaseConfig{Wait: time.Second}).Lock(e.Context())).MustFail(e, lockcore.ErrNotAcquired)
		d.roundTrip.Store(int64(2 * time.Millisecond))
		e.Pass(time.Second)
		waiter := e.goLock(e.mutex(c, "orders", lockcore.LeaseConfig{Wait: 30 * time.Millisecond}))
		e.Pass(20 * time.Millisecond)
		e.unlock(held)
		e.unlock(waiter.granted())
	})
}
