package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
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

// More callers than places wait for little more than a handover takes, so many leave when it is their turn. The queue
// does not serve those that will have left before the grant arrives, so that the others acquire each place once per two
// round trips. If all of them polled it, they would at best acquire it twice as often. A caller that has more than
// three round trips left is not passed over by one that began more than a round trip later; before, either request may
// arrive first.
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
					ctx, cancel := context.WithTimeout(e.Context(), lasts)
					defer cancel()
					var all sync.WaitGroup
					var mu sync.Mutex
					got := 0
					granted := map[time.Time]time.Time{} // when an acquisition began, and when it was granted at the latest
					for caller := range c.callers {
						all.Go(func() {
							time.Sleep(rand.N(c.wait))
							for ctx.Err() == nil {
								ctx, cancel := context.WithTimeout(ctx, c.wait)
								began := time.Now()
								lease, err := acquire[caller%3](ctx)
								mu.Lock()
								if err == nil {
									got++
									granted[began] = time.Now().Add(-c.roundTrip / 2)
								} else {
									mustIs(e, err, context.DeadlineExceeded)
								}
								ends, _ := ctx.Deadline()
								for later, at := range granted {
									if left := ends.Sub(at); err != nil && later.Sub(began) > c.roundTrip && left > 3*c.roundTrip {
										e.Errorf("a caller was passed over when it had another %v", left)
									}
								}
								mu.Unlock()
								if err == nil {
									e.unlock(lease)
								}
								cancel()
							}
						})
					}
					all.Wait()
					if least := places * int(lasts/(3*c.roundTrip)); got < least {
						e.Errorf("acquired %d times, want at least %d", got, least)
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
