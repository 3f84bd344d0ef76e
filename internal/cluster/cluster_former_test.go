package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A primary is frozen with a request, and its slot gets another primary meanwhile. The former one
// resumes and answers. The answer does not count, as the new primary does not know of it.
func TestFault18_AnswerOfAFormerPrimaryOfTheSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := map[string]*lockcoretest.Redis{"127.0.0.1:1": lockcoretest.NewRedis(t), "127.0.0.1:2": lockcoretest.NewRedis(t)}
		former, next := nodes["127.0.0.1:1"], nodes["127.0.0.1:2"]
		const mid = 8192 // "orders" is in slot 105
		var first atomic.Int64
		var down atomic.Bool
		for _, n := range nodes {
			n.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
				begin := int(first.Load())
				switch {
				case cmd == "CLUSTER" && args[0] == "info":
					c.WriteBulk(fmt.Sprintf("cluster_state:ok\r\ncluster_current_epoch:%d\r\n", 1+begin))
				case cmd == "CLUSTER":
					ranges := [][3]int{{begin, mid - 1, 1}, {mid, 16383, 2}}
					if begin > 0 {
						ranges = append(ranges, [3]int{0, begin - 1, 2})
					}
					c.WriteLen(len(ranges))
					for _, r := range ranges {
						c.WriteLen(3)
						c.WriteInt(r[0])
						c.WriteInt(r[1])
						c.WriteLen(2)
						c.WriteBulk("127.0.0.1")
						c.WriteInt(r[2])
					}
				case cmd == "GET" && down.Load():
					c.WriteError("CLUSTERDOWN the cluster is down")
				default:
					return false
				}
				return true
			})
		}
		opt := former.Options()
		w := connectClusterOf(t, &redis.Options{
			Addr: opt.Addr,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return nodes[addr].Options().Dialer(ctx, network, addr)
			},
		}, func(wire.Request, error) {}, "127.0.0.1:1", "127.0.0.1:2")
		set := func() (any, error) {
			return w.Send(t.Context(), "orders", wire.Command("set", "{orders}:key", 1), 3*time.Second)
		}
		if answer, err := set(); err != nil || answer != "OK" {
			t.Fatalf("%v, %v", answer, err)
		}
		time.Sleep(10 * time.Second)
		former.Hang()
		ended := make(chan error, 1)
		go func() {
			_, err := set()
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		first.Store(200)
		down.Store(true)
		// Its slot is at the other node. The answer makes the Wire ask for the slots again.
		if _, err := w.Send(t.Context(), "a", wire.Command("get", "{a}:key"), time.Second); !wire.HasCode(err, "CLUSTERDOWN") {
			t.Errorf("GET: %v", err)
		}
		time.Sleep(time.Second)
		former.Unhang()
		if err := <-ended; !errors.Is(err, wire.ErrUnknown) || !errors.Is(err, cluster.ErrFormerServer) {
			t.Errorf("the answer of the former primary: %v", err)
		}
		if answer, err := set(); err != nil || answer != "OK" || !next.Server().Exists("{orders}:key") {
			t.Errorf("at the new primary: %v, %v", answer, err)
		}
	})
}
