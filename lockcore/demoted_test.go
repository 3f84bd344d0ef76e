package lockcore_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// The server is demoted to a replica while the subscription stays on it: it hears all
// that its master publishes, but the master's count of receivers does not know of it.
// A waiter is passed over once for that. The subscription then moves to the new
// master, and waiters are served by push.
//
// Caught mutants: the count of receivers, once found true, is believed for ever (then
// the waiter is passed over again and again, and takes a look per TTL); the
// subscription stays where it is.
func TestFault18_ClassD_ListeningToADemotedServer(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	next := servers.Redis(t)
	var at atomic.Value
	at.Store(e.real.Addr())
	opt := e.direct()
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at.Load().(string))
	}
	c := e.clientWith(opt, lockcore.Config{Identity: "a"})
	// The subscription is there, and counts.
	first := e.try(e.mutex(c, "orders", ttl(20*time.Second)))
	second := e.inLine(e.mutex(c, "orders", ttl(20*time.Second)))
	e.unlock(first)
	e.unlock(second.granted())

	host, port, err := net.SplitHostPort(next.Addr())
	must(e, err)
	at.Store(next.Addr())
	must(e, e.raw.Do(e.Context(), "replicaof", host, port).Err())
	e.until("the replica is linked", func() bool {
		return strings.Contains(e.raw.Info(e.Context(), "replication").Val(), "master_link_status:up")
	})
	master := redis.NewClient(e.options(next.Addr()))
	defer master.Close()
	e.raw = master // what follows looks there

	holder := e.try(e.mutex(e.client2(next.Addr()), "orders", ttl(30*time.Second)))
	waiter := e.goLock(e.mutex(c, "orders", ttl(time.Second)))
	e.until("the waiter stands in line at the new master", func() bool { return e.lineLength("orders") == 1 })
	e.unlock(holder)
	lease := waiter.granted()
	channel := "noonlock:ch:" + c.Process()
	e.until("the subscription is on the new master", func() bool {
		return master.PubSubNumSub(e.Context(), channel).Val()[channel] == 1
	})
	e.until("its count of receivers is trusted again", func() bool {
		again := e.inLine(e.mutex(c, "orders", ttl(20*time.Second)))
		line := master.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
		again.cancel()
		_, _ = again.wait()
		e.until("it has left", func() bool { return e.lineLength("orders") == 0 })
		return len(line) == 1 && strings.Contains(line[0], ".t/")
	})
	again := e.inLine(e.mutex(c, "orders", ttl(20*time.Second)))
	looks := e.calls("evalsha")
	e.unlock(lease)
	e.unlock(again.granted())
	if n := e.calls("evalsha") - looks; n > 4 {
		t.Errorf("a hand-over by push took %d calls", n)
	}
}

// client2 is a client of another server.
func (e *env) client2(addr string) *lockcore.Client {
	e.Helper()
	return e.clientWith(e.options(addr), lockcore.Config{Identity: "b"})
}
