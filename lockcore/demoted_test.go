package lockcore_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// The server is demoted to a replica while the subscription stays on it. The subscription
// receives all messages of the new master, but the master does not count it as a receiver.
// A waiter is passed over once for that. Then the subscription moves to the new master,
// and waiters are served by messages.
//
// Caught mutants: the count of receivers is trusted forever after one test (the waiter is
// then passed over repeatedly, and waits for its look each time); the subscription does
// not move.
func TestFault18_ClassD_ListeningToADemotedServer(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	next := servers.Redis(t)
	var at atomic.Value
	at.Store(e.Real.Addr())
	opt := e.Direct()
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at.Load().(string))
	}
	c := e.ClientWith(opt, lockcore.Config{Identity: "a"})
	// The subscription is up and counted as a receiver.
	first := e.try(e.mutex(c, "orders", ttl(20*time.Second)))
	second := e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
	e.unlock(first)
	e.unlock(second.granted())

	host, port, err := net.SplitHostPort(next.Addr())
	must(e, err)
	at.Store(next.Addr())
	must(e, e.Raw.Do(e.Context(), "replicaof", host, port).Err())
	e.Until("the replica is linked", func() bool {
		return strings.Contains(e.Raw.Info(e.Context(), "replication").Val(), "master_link_status:up")
	})
	master := redis.NewClient(testenv.Options(next.Addr()))
	defer master.Close()
	e.Raw = master // for the checks below

	holder := e.try(e.mutex(e.client2(next.Addr()), "orders", ttl(30*time.Second)))
	waiter := e.goLock(e.mutex(c, "orders", ttl(time.Second)))
	e.Until("the waiter is queued at the new master", func() bool { return e.queueLength("orders") == 1 })
	e.unlock(holder)
	lease := waiter.granted()
	channel := "noonlock:ch:" + c.Process()
	e.Until("the subscription is on the new master", func() bool {
		return master.PubSubNumSub(e.Context(), channel).Val()[channel] == 1
	})
	e.Until("its count of receivers is trusted again", func() bool {
		again := e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
		queue := master.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
		again.cancel()
		_, _ = again.wait()
		e.Until("it has left", func() bool { return e.queueLength("orders") == 0 })
		return len(queue) == 1 && strings.Contains(queue[0], ".t/")
	})
	again := e.queued(e.mutex(c, "orders", ttl(20*time.Second)))
	looks := e.calls("evalsha")
	e.unlock(lease)
	e.unlock(again.granted())
	if n := e.calls("evalsha") - looks; n > 4 {
		t.Errorf("a hand-over by push took %d calls", n)
	}
}

// The server's address leads to the new master, and older connections to the demoted
// server stay up. A connection is closed after one READONLY reply in a batch, whatever the
// other replies are. The next connection is to the new master, and the leases stay valid.
//
// Caught mutant: the connection is kept. go-redis itself closes a connection only if the
// first reply of a batch is READONLY.
func TestFault18_ClassD_ConnectionsToADemotedServerAreDropped(t *testing.T) {
	t.Parallel()
	for version, refusal := range map[string]string{
		"6.2": "ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.",
		"7.0": "READONLY You can't write against a read only replica. script: 0123, on @user_script:1.",
	} {
		for _, first := range []string{"spoilt", "sound"} {
			t.Run(version+"/the first is "+first, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(e *env) {
					const long, others = 10 * time.Second, 3
					var mu sync.Mutex
					old, refused, demoted := map[*server.Peer]bool{}, map[*server.Peer]int{}, false
					e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
						mu.Lock()
						defer mu.Unlock()
						if !demoted {
							old[p] = true
						}
						if !demoted || !old[p] || cmd != "EVALSHA" || slices.Contains(args, e.key("spoilt", "lock")) {
							return false
						}
						refused[p]++
						p.WriteError(refusal)
						return true
					})
					c := e.Client("a")
					early := e.try(e.mutex(c, "early", ttl(long)))
					e.Pass(long) // the connection for renewals exists
					e.unlock(early)

					head := e.try(e.mutex(c, first, ttl(long)))
					e.Pass(time.Millisecond) // it is the first of the batch
					var held []*lockcore.Lease
					for i := range others {
						held = append(held, e.try(e.mutex(c, fmt.Sprintf("orders-%d", i), ttl(long))))
					}
					mu.Lock()
					demoted = true
					mu.Unlock()
					if first == "spoilt" {
						must(e, e.Raw.Del(e.Context(), e.key("spoilt", "lock")).Err())
						must(e, e.Raw.HSet(e.Context(), e.key("spoilt", "lock"), "a", "b").Err())
					} else {
						held = append(held, head)
					}
					e.Pass(2 * long)
					for _, lease := range held {
						must(e, lease.Context().Err())
					}
					held = append(held, e.try(e.mutex(c, "orders", ttl(long))))
					mu.Lock()
					defer mu.Unlock()
					if len(refused) != 1 {
						t.Errorf("%d connections were refused, want that of the renewals: the first refusal replaces all", len(refused))
					}
					for _, n := range refused {
						if n > len(held) {
							t.Errorf("a connection was used again after a refusal: %d refusals", n)
						}
					}
				})
			})
		}
	}
}

// client2 returns a client of another server.
func (e *env) client2(addr string) *lockcore.Client {
	e.Helper()
	return e.ClientWith(testenv.Options(addr), lockcore.Config{Identity: "b"})
}
