package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A lease with a TTL of 200 ms or more outlives an outage of 0.62 TTL of every kind, whenever it begins. A lease
// does not outlive an outage that begins right before a renewal and lasts longer than the remaining validity.
func TestFault72_OutageTolerance(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		for _, given := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 0, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s, TTL %v", name, given), func(t *testing.T) {
				t.Parallel()
				full := given
				if full == 0 {
					full = 10 * time.Second // the default
				}
				renew := full / 3
				tolerated := full * 62 / 100
				for _, before := range []time.Duration{time.Millisecond, renew / 20, renew / 4, renew / 2, renew * 3 / 4, renew - time.Millisecond} {
					if !outlives(t, outage, given, 2*renew-before, tolerated) {
						t.Errorf("the lease was lost in an outage of %v that began %v before a renewal", tolerated, before)
					}
				}
				tooLong := full - renew - time.Millisecond
				if outlives(t, outage, given, 2*renew-time.Millisecond, tooLong) {
					t.Errorf("the lease outlived an outage of %v", tooLong)
				}
			})
		}
	}
}

// Lock waits through an outage, which may have begun before its first request, until ctx ends. The Client is new, or
// its subscription is up, so that Lock queues at once. Calls that wait say for whom, within 5 s and once for a name,
// and once that the server is away and back.
func TestFault72_LockDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(e *env) {
				o, log := outage(e.Env), &testenv.Log{}
				fresh := e.ClientWith(o.Options, lockcore.Config{Identity: "fresh"})
				c := e.ClientWith(o.Options, lockcore.Config{Identity: "b", Logger: log.Info("")})
				e.try(e.mutex(e.Client("a"), "orders", ttl(10*time.Second)))
				for range 20 {
					e.queued(e.mutex(c, "orders", ttl(10*time.Second)))
				}
				e.Pass(5 * time.Second)
				if n := log.Count("waiting for a lock", `"name"="orders" "holder"="a"`); n != 1 || log.Count("waiting") != 1 {
					e.Errorf("while others hold the lock:\n%s", log)
				}
				o.Begin()
				waiters := []*pending{
					e.goLock(e.mutex(fresh, "x", ttl(time.Second))), e.goLock(e.mutex(c, "y", ttl(10*time.Second))), e.goLock(e.mutex(c, "z", ttl(time.Second))),
				}
				e.Pass(5 * time.Second)
				fails := name == "refused" || name == "hanging"
				if fails && log.Count("lock request failed; retrying", `"locks"=`, `"err"=`) != 1 {
					e.Errorf("during the outage:\n%s", log)
				}
				for _, of := range []*lockcore.Client{fresh, c} {
					ctx, cancel := context.WithTimeout(e.Context(), 5*time.Second)
					call(e.mutex(of, "free", ttl(time.Second)).Lock(ctx)).MustFail(e, context.DeadlineExceeded)
					cancel()
				}
				o.End()
				for _, w := range waiters {
					e.unlock(w.granted())
				}
				e.Pass(5 * time.Second)
				if fails {
					log.Lines(e, 1, "the server answers again", `"locks"=`, `"after"=`)
				}
			})
		})
	}
}

// subscribes makes the subscription of a Client to the messages about a name.
func (e *env) subscribes(c *lockcore.Client, name string) {
	e.Helper()
	held := e.try(e.mutex(c, name, ttl(20*time.Second)))
	waiter := e.queued(e.mutex(c, name, ttl(20*time.Second)))
	e.unlock(held)
	e.unlock(waiter.granted())
}

// outlives reports whether a lease outlives an outage that begins at the given time.
func outlives(t *testing.T, outage func(*testenv.Env) *testenv.Outage, ttl, at, lasts time.Duration) (yes bool) {
	t.Helper()
	testenv.InBubble(t, func(of *testenv.Env) {
		e, o := &env{Env: of}, outage(of)
		lease := e.try(e.mutex(e.ClientWith(o.Options, lockcore.Config{}), "orders", lockcore.LeaseConfig{TTL: ttl}))
		e.Pass(at)
		o.Begin()
		time.Sleep(lasts)
		o.End()
		e.Pass(max(3*time.Second, ttl))
		if yes = lease.Context().Err() == nil; yes {
			e.unlock(lease)
		}
		o.Faults.Heal()
	})
	return yes
}

// A distance is a network on which each round trip, and so each dial, takes the same time.
type distance struct {
	where string // the topology

	roundTrip atomic.Int64
	dials     atomic.Int64
}

// inTheDistance runs a test in a bubble for each topology, with a Client that is far away from its servers. A
// topology is left out if the round trip is longer than it can be there. A grant of a quorum takes two round trips,
// which are not longer than ofQuorum there.
func inTheDistance(t *testing.T, roundTrip, ofQuorum time.Duration, test func(e *testenv.Env, c *lockcore.Client, d *distance)) {
	t.Helper()
	t.Parallel()
	for where, far := range map[string]struct{ limit, roundTrip time.Duration }{ // a round trip must be shorter than limit
		"one server":           {3 * time.Second, roundTrip},
		"Sentinel and primary": {time.Second, roundTrip},             // a dial takes three round trips, and has three seconds
		"cluster":              {1500 * time.Millisecond, roundTrip}, // a node has three seconds to set up a connection for a view
		"quorum":               {1500 * time.Millisecond, min(roundTrip, ofQuorum)},
	} {
		if roundTrip >= far.limit {
			continue
		}
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				d := &distance{where: where}
				open, end := e.Topology(where, d.dial)
				d.roundTrip.Store(int64(far.roundTrip))
				d.dials.Store(0)
				c := call(open(lockcore.Config{})).Must(e)
				e.Cleanup(func() {
					_ = c.Close(context.Background())
					end()
					time.Sleep(time.Minute) // the last bytes arrive
				})
				test(e, c, d)
			})
		})
	}
}

// dial makes a connection over the distance.
func (d *distance) dial(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error) {
	d.dials.Add(1)
	select {
	case <-time.After(time.Duration(d.roundTrip.Load())):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	server, err := dial()
	if err != nil {
		return nil, err
	}
	client, near := net.Pipe()
	go d.carry(near, server)
	go d.carry(server, near)
	return client, nil
}

// carry passes on what it reads, after half of a round trip.
func (d *distance) carry(to, from net.Conn) {
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 1000)
	go func() {
		defer to.Close()
		for p := range packets {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data)
		}
	}()
	defer close(packets)
	for {
		b := make([]byte, 1<<14)
		n, err := from.Read(b)
		if err != nil {
			return
		}
		packets <- packet{time.Now().Add(time.Duration(d.roundTrip.Load() / 2)), b[:n]}
	}
}

// A round trip takes almost a third of the TTL, or of the longest time for one answer. A new Client acquires a lock,
// renews it for several TTLs and releases it, although a connection takes several round trips. It dials more often
// than nearby, because it begins to make another connection when one takes long, but not more and more often.
func TestFault105_RoundTripIsAPartOfTheTTL(t *testing.T) {
	dials := map[string]int{"one server": 10, "Sentinel and primary": 18, "cluster": 18, "quorum": 18}
	for _, lasts := range []struct{ roundTrip, ttl time.Duration }{
		{30 * time.Millisecond, 300 * time.Millisecond},
		{60 * time.Millisecond, 300 * time.Millisecond},
		{95 * time.Millisecond, 300 * time.Millisecond},
		{950 * time.Millisecond, 10 * time.Second},
		{990 * time.Millisecond, 10 * time.Second},
		{1490 * time.Millisecond, 10 * time.Second},
		{1500 * time.Millisecond, 10 * time.Second},
		{2900 * time.Millisecond, 10 * time.Second},
	} {
		t.Run(fmt.Sprintf("%v of %v", lasts.roundTrip, lasts.ttl), func(t *testing.T) {
			inTheDistance(t, lasts.roundTrip, lasts.ttl/5-time.Millisecond, func(e *testenv.Env, c *lockcore.Client, d *distance) {
				m := call(c.Mutex("orders", ttl(lasts.ttl))).Must(e)
				ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
				defer cancel()
				l := call(m.Lock(ctx)).Must(e)
				left := l.Remaining()
				if left < lasts.ttl-3*lasts.roundTrip {
					e.Errorf("the lease is valid for another %v: the wait for the connection counts", left)
				}
				if onServer := e.Raw.PTTL(e.Context(), "noonlock:{orders}:lock").Val(); onServer > 0 && onServer < left {
					e.Errorf("the lease is valid for another %v, and on the server for %v", left, onServer)
				}
				e.Pass(10 * lasts.ttl)
				must(e, context.Cause(l.Context()))
				must(e, l.Unlock(e.Context()))
				if n := int(d.dials.Load()); n > dials[d.where] {
					e.Errorf("%d dials, want at most %d", n, dials[d.where])
				}
			})
		})
	}
}

// A round trip takes longer than an answer may take for a lock with a short TTL, and less than for one with a long
// TTL. The first one is not acquired, the error says so, and connections do not pile up. The lease of the second one
// goes on.
func TestFault105_RoundTripIsTooLong(t *testing.T) {
	inTheDistance(t, 200*time.Millisecond, 200*time.Millisecond*2/3, func(e *testenv.Env, c *lockcore.Client, d *distance) {
		m := call(c.Mutex("short", ttl(300*time.Millisecond))).Must(e)
		_, err := m.TryLock(e.Context())
		if err == nil || !strings.Contains(err.Error(), "no answer within") && !strings.Contains(err.Error(), "answered in time") {
			e.Errorf("TryLock: %v", err)
		}
		ctx, cancel := context.WithTimeout(e.Context(), 12*time.Second)
		defer cancel()
		call(m.Lock(ctx)).MustFail(e, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		if n := d.dials.Load(); n > 90 { // three servers: 35 to 62, as the pauses are random
			e.Errorf("%d dials in 12 s", n)
		}

		long := call(c.Mutex("orders", ttl(3*time.Second))).Must(e)
		l := call(long.Lock(e.Context())).Must(e)
		ctx, cancel = context.WithTimeout(e.Context(), 30*time.Second)
		defer cancel()
		call(m.Lock(ctx)).MustFail(e, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		must(e, context.Cause(l.Context()))
		must(e, l.Unlock(e.Context()))
	})
}

// Locks with different TTLs use the same connections. They share batches, so that they are acquired almost as often
// as those with one TTL.
func TestFault103_MixedTTLs(t *testing.T) {
	inTheDistance(t, 2*time.Millisecond, time.Millisecond, func(e *testenv.Env, c *lockcore.Client, _ *distance) {
		cycles := func(ttls ...time.Duration) int {
			var n atomic.Int64
			var all sync.WaitGroup
			until := e.Clock() + 100*time.Millisecond
			for i := range 30 {
				m := call(c.Mutex(fmt.Sprint("lock", i), ttl(ttls[i%len(ttls)]))).Must(e)
				all.Go(func() {
					for e.Clock() < until {
						l, err := m.TryLock(e.Context())
						if err == nil {
							err = l.Unlock(e.Context())
						}
						if err != nil {
							e.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
			all.Wait()
			return int(n.Load())
		}
		cycles(10 * time.Second) // connects
		one := cycles(10 * time.Second)
		six := cycles(150*time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, 6*time.Second, 10*time.Second)
		if six*10 < one*7 {
			e.Errorf("%d cycles with one TTL, %d with six", one, six)
		}
	})
}

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
