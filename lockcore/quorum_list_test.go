package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Clients have different servers under one number, as somebody has replaced servers and has not increased it. There
// is never more than one holder. If less than half was replaced, the clients with the new servers use the others, and
// let none in. Otherwise they are refused. With a greater number, the new servers are let in if they are less than half.
// If not, they are no quorum before an operator says that nobody uses the former ones.
func TestFault118_136_OtherServersUnderOneNumber(t *testing.T) {
	for name, c := range map[string]struct {
		former, next []int
		tooMany      bool
	}{
		"one of three":  {former: []int{0, 1, 2}, next: []int{0, 1, 3}},
		"two of three":  {former: []int{0, 1, 2}, next: []int{0, 3, 4}, tooMany: true},
		"two of five":   {former: []int{0, 1, 2, 3, 4}, next: []int{0, 1, 2, 5, 6}},
		"three of five": {former: []int{0, 1, 2, 3, 4}, next: []int{0, 1, 5, 6, 7}, tooMany: true},
	} {
		t.Run(name, func(t *testing.T) {
			inServersBubble(t, 8, func(e *quorumEnv) {
				former := e.clientOfSome(1, c.former)
				held := e.lock(e.mutex(former, "orders"))
				// follows says that a lease begins after another one has ended.
				follows := func(c *lockcore.Client, earlier *lockcore.Lease) *lockcore.Lease {
					ctx, cancel := context.WithTimeout(e.Context(), patience)
					defer cancel()
					l, err := e.mutex(c, "orders").Lock(ctx)
					left := earlier.Remaining()
					must(e, err)
					if left > 0 || l.Token() <= earlier.Token() {
						e.Errorf("token %d after %d, which is valid for %v", l.Token(), earlier.Token(), left)
					}
					return l
				}
				next := e.clientOfSome(1, c.next)
				if !c.tooMany {
					call(e.mutex(next, "orders").TryLock(e.Context())).MustFail(e, lockcore.ErrNotAcquired)
					time.Sleep(2 * e.maxTTL)
					must(e, context.Cause(held.Context()))
					e.unlock(held)
					for _, by := range []*lockcore.Client{next, former} {
						held = follows(by, held)
						time.Sleep(2 * e.maxTTL)
						must(e, context.Cause(held.Context()))
						if by == next {
							e.unlock(held)
						}
					}
					for _, i := range c.next {
						equal(e, fmt.Sprintf("server %d has a list", i), e.list(i) != "", slices.Contains(c.former, i))
					}
					e.unlock(follows(e.clientOfSome(2, c.next), held))
					e.refuses(former, "later list")
					return
				}
				e.refuses(next, "replace less than half")
				e.refuses(e.clientOfSome(2, c.next), "replace less than half")
				time.Sleep(2 * e.maxTTL)
				must(e, context.Cause(held.Context()))
				e.unlock(held)
				must(e, former.Close(e.Context()))
				for _, i := range c.former {
					must(e, e.raw(i).HDel(e.Context(), quorumMarkerKey, "list").Err())
				}
				_, _ = e.mutex(next, "orders").TryLock(e.Context()) // it examines the servers
				time.Sleep(time.Second)
				e.unlock(follows(next, held))
			})
		})
	}
}

// list returns the name of the list that a server has.
func (e *quorumEnv) list(i int) string {
	return e.raw(i).HGet(e.Context(), quorumMarkerKey, "list").Val()
}

// Inspect changes nothing, at empty servers and beside a quorum.
func TestFault136_InspectOfOtherServers(t *testing.T) {
	inServersBubble(t, 4, func(e *quorumEnv) {
		inspect := func(of ...int) {
			call(e.clientOfSome(1, of).Inspect(e.Context(), "orders")).Must(e)
			time.Sleep(time.Second)
			for _, i := range []int{0, 1, 2, 3} {
				if keys := e.servers[i].Server().Keys(); slices.Contains(of, i) && e.list(i) == "" && len(keys) > 0 {
					e.Errorf("server %d has the keys %q", i, keys)
				}
			}
		}
		inspect(0, 1, 2)
		held := e.lock(e.mutex(e.clientOfSome(1, []int{0, 1, 2}), "orders"))
		inspect(0, 1, 3)
		e.unlock(held)
	})
}

// The first requests of a Client need a majority only. Another server hangs.
func TestQuorumFirstLockBesideAServerThatHangs(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		e.servers[1].Hang()
		c := e.client("fresh")
		m := call(c.Mutex("orders", lockcore.LeaseConfig{TTL: 300 * time.Millisecond})).Must(e)
		began := time.Now()
		l := call(m.TryLock(e.Context())).Must(e)
		if took := time.Since(began); took > 20*time.Millisecond {
			e.Errorf("it took %v", took)
		}
		e.unlock(l)
		e.servers[1].Unhang()
	})
}

// Clients start together with different lists under one number, which share servers. Each is soon refused for good or
// acquires the lock, and never two at once, whatever the order of their requests. If the sizes differ, one is refused.
func TestFault118_OtherListsAtTheFirstStart(t *testing.T) {
	lists := map[string][2][]int{
		"three of five":          {{0, 1, 2}, {0, 1, 2, 3, 4}},
		"three, two of five":     {{0, 1, 5}, {0, 1, 2, 3, 4}},
		"three, one of five":     {{0, 5, 6}, {0, 1, 2, 3, 4}},
		"five of seven":          {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5, 6}},
		"three in another order": {{4, 2, 0}, {0, 1, 2, 3, 4}},
		"three, two shared":      {{0, 1, 2}, {0, 1, 3}},
		"three, one shared":      {{0, 1, 2}, {0, 3, 4}},
		"five, four shared":      {{0, 1, 2, 3, 4}, {0, 1, 2, 3, 5}},
		"five, three shared":     {{0, 1, 2, 3, 4}, {0, 1, 2, 5, 6}},
	}
	for name, sides := range lists {
		for n := range testenv.Size(12, 100) {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				inServersBubble(t, 7, func(e *quorumEnv) {
					for i, s := range e.servers {
						if !slices.Contains(slices.Concat(sides[0], sides[1]), i) {
							continue
						}
						s.Faults().Inject(e.T, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: rand.N(20*time.Millisecond) + 1})
					}
					ended := make([]chan error, 2)
					var held atomic.Int32
					clients := make([]*lockcore.Client, 2)
					for i, of := range sides {
						clients[i], ended[i] = e.clientOfSome(1, of), make(chan error, 1)
						go func() {
							time.Sleep(rand.N(30 * time.Millisecond))
							ctx, cancel := context.WithTimeout(e.Context(), 4*e.maxTTL)
							defer cancel()
							l, err := e.mutex(clients[i], "orders").Lock(ctx)
							if err == nil {
								if held.Add(1) > 1 {
									e.Error("both hold the lock")
								}
								time.Sleep(time.Second)
								held.Add(-1)
								err = l.Unlock(e.Context())
							}
							ended[i] <- err
						}()
					}
					refused, reason := 0, ""
					if len(sides[0]) != len(sides[1]) {
						reason = "another number of servers"
					}
					for i := range sides {
						err := <-ended[i]
						if err == nil {
							continue
						}
						refused++
						mustIs(e, err, lockcore.ErrNoQuorum)
						if lockcore.IsTemporary(err) || !strings.Contains(err.Error(), reason) {
							e.Errorf("side %d: Lock: %v", i, err)
						}
						e.refuses(clients[i], reason)
					}
					if refused == 0 && len(sides[0]) != len(sides[1]) {
						e.Error("nobody was refused")
					}
				})
			})
		}
	}
}

// clientOfSome returns a Client of some servers, with the number of its list.
func (e *quorumEnv) clientOfSome(list int, of []int) *lockcore.Client {
	e.Helper()
	all := e.options()
	var options []*redis.Options
	for _, i := range of {
		options = append(options, all[i])
	}
	return e.clientOf(options, lockcore.QuorumConfig{List: list, MaxTTL: e.maxTTL})
}

// refuses checks that a Client is soon refused for good, for a reason.
func (e *quorumEnv) refuses(c *lockcore.Client, reason string) {
	e.Helper()
	m := e.mutex(c, "refused")
	var err error
	for range 20 {
		_, err = m.TryLock(e.Context())
		mustIs(e, err, lockcore.ErrNoQuorum)
		if err != nil && !lockcore.IsTemporary(err) && strings.Contains(err.Error(), reason) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	e.Errorf("%v, want a permanent error with %q", err, reason)
}

// A server returns without its data. It is another one from then on, so that the list has a new version. Leases with
// short TTLs live on, also those of a Client that has not noticed the return.
func TestQuorumReturnEndsNoLease(t *testing.T) {
	inQuorumBubble(t, 3, func(e *quorumEnv) {
		short := func(c *lockcore.Client) *lockcore.Lease {
			m := call(c.Mutex("of-"+c.Identity(), lockcore.LeaseConfig{TTL: 300 * time.Millisecond})).Must(e)
			return e.lock(m)
		}
		a, b := short(e.client("a")), short(e.client("b"))
		for i := range 3 {
			e.servers[i].Stop()
			e.restart(i)
			time.Sleep(2*e.maxTTL + time.Second)
			must(e, context.Cause(a.Context()))
			must(e, context.Cause(b.Context()))
		}
		e.unlock(a)
		e.unlock(b)
	})
}
