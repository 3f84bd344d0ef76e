package chaos

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
)

// The primary is killed while a replica draws, and one of its replicas takes its place.
// Every noon is drawn once, and lottery verify finds nothing.

// lotteryRights is the user of the lottery with the rights of a Runner, as a line of
// redis.conf.
const lotteryRights = "user lottery on >hunter2 ~noonlock:* resetchannels &noonlock:ch:* &noonlock:job:* -@all +evalsha" +
	" +eval +time +lrange +subscribe +unsubscribe +ping +publish +exists +get +set" +
	" +hget +hset +hdel +hmget +hkeys +hgetall +hexists +hlen +lpush" +
	" +ltrim +lindex +lpop +llen +pttl +pexpire +persist"

func TestSentinelPromotesInADraw(t *testing.T) {
	t.Parallel()
	const name = "noon"
	primary := servers.Redis(t, "repl-diskless-sync-delay 0", lotteryRights+" +select")
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		servers.Redis(t, "replicaof "+host+" "+port, lotteryRights+" +select")
	}
	var sentinels []*servers.RedisServer
	var addrs []string
	for range 3 {
		s := servers.Sentinel(t, name, primary.Addr(), 2,
			"user lottery on >hunter2 -@all resetchannels &+switch-master &+replica-reconf-done +sentinel|get-master-addr-by-name +sentinel|sentinels +subscribe +ping",
			"sentinel failover-timeout "+name+" 5000")
		sentinels = append(sentinels, s)
		addrs = append(addrs, s.Addr())
	}
	w := newWorldAt(t, "redis+sentinel://lottery:hunter2@"+strings.Join(addrs, ",")+"/3?master="+name+"&sentinel_username=lottery&sentinel_password=hunter2")
	servers.AwaitSentinels(t, name, 2, sentinels...)
	w.failsOver(func(context.Context) *servers.RedisServer { return primary }, func() {
		servers.Promote(t, name, primary.Addr(), sentinels...)
	})
}

func TestClusterPromotesInADraw(t *testing.T) {
	t.Parallel()
	c := servers.Cluster(t, 3, 3, lotteryRights+" &noonlock:{* +cluster|slots +cluster|info +asking +ssubscribe +sunsubscribe +spublish")
	w := newWorldAt(t, "redis+cluster://lottery:hunter2@"+strings.Join(c.Addrs()[:2], ","))
	w.failsOver(func(ctx context.Context) *servers.RedisServer {
		for _, s := range c.Primaries {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			defer rdb.Close()
			if n, err := rdb.DBSize(ctx).Result(); err != nil {
				t.Fatal(err)
			} else if n > 0 {
				return s
			}
		}
		t.Fatal("no primary has the keys of the lottery")
		return nil
	}, func() {})
}

// failsOver kills the server of the lottery's keys while a replica draws. promote makes another
// server the primary, unless the servers do so by themselves.
func (w *world) failsOver(server func(context.Context) *servers.RedisServer, promote func()) {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var fleet []*replica
	for _, name := range []string{"a", "b", "c"} {
		fleet = append(fleet, w.start(name, nil))
	}
	w.awaitDraws(ctx, 3)
	primary := server(ctx)
	holder, release := w.holdDraw(ctx, fleet)
	killed := time.Now()
	primary.Kill()
	release()
	promote()
	before := w.countDraws(ctx)
	w.awaitDraws(ctx, before+2)
	back := time.Since(killed)
	w.awaitDraws(ctx, before+10)
	for _, r := range fleet {
		if code, err := r.terminate(ctx); code != 0 || err != nil {
			t.Errorf("%s: exit code %d, %v", r.name, code, err)
		}
		if log := r.logs.String() + r.logs.Foreign(); strings.Contains(log, "NOPERM") {
			t.Errorf("%s lacks a right:\n%s", r.name, log)
		}
	}
	draws := w.draws(ctx)
	servers.Count(t, "the primary of %s was killed while %s drew; the next noon was drawn after %s", strings.SplitN(w.url, ":", 2)[0], holder.name, fmt.Sprint(back.Round(100*time.Millisecond)))
	w.verify(ctx, time.UnixMilli(draws[0].tick), time.UnixMilli(draws[len(draws)-1].tick))
}
