package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A topology is a deployment of Redis.
type topology struct {
	t         testing.TB
	urls      []string
	servers   []*servers.RedisServer // those with data
	sentinels []*servers.RedisServer
	addresses []string // of which workers know
	replicas  int      // MinReplicas
	quorum    bool
	shards    int           // primaries of a cluster
	delay     time.Duration // LockDelay
	together  int           // servers that may have a fault at a time
	faults    []fault       // of the servers
}

// topologies starts each topology. Leases have that TTL.
var topologies = map[string]func(t testing.TB, ttl time.Duration) *topology{
	"one":      one,
	"cluster":  cluster,
	"sentinel": func(t testing.TB, _ time.Duration) *topology { return sentinel(t, 0) },
	// A Client learns of the new primary within about a second, and may renew at the old one until then.
	"delay":   func(t testing.TB, ttl time.Duration) *topology { return sentinel(t, ttl+2*time.Second) },
	"quorum":  quorum,
	"replica": replica,
}

const watched = servers.WatchedName

// command sends commands to a server, which may be away.
func (top *topology) command(s *servers.RedisServer, commands ...string) {
	rdb := s.Client()
	defer rdb.Close()
	for _, line := range commands {
		var args []any
		for word := range strings.FieldsSeq(line) {
			args = append(args, strings.Trim(word, `"`))
		}
		if err := rdb.Do(context.WithoutCancel(top.t.Context()), args...).Err(); err != nil {
			top.t.Log(s.Addr(), line, err)
		}
	}
}

// durable are the lines of redis.conf of a server that keeps all its data.
var durable = []string{
	"appendonly yes", "appendfsync always", "enable-debug-command yes",
	"repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
}

// one is one server that keeps its data.
func one(t testing.TB, _ time.Duration) *topology {
	t.Helper()
	s := servers.Redis(t, durable...)
	top := &topology{
		t: t, urls: []string{"redis://" + s.Addr()}, addresses: []string{s.Addr()}, together: 1,
		servers: []*servers.RedisServer{s},
	}
	data, backup := filepath.Join(s.Dir(), "appendonlydir"), filepath.Join(t.TempDir(), "backup")
	again := func(change func()) func(time.Duration) func() {
		return func(time.Duration) func() {
			s.Kill()
			change()
			return func() { s.Restart(t) }
		}
	}
	top.faults = append(top.server("s0", func() *servers.RedisServer { return s }),
		fault{"restart with data", "S", 4, "s0", time.Second, again(func() {})},
		fault{"restart empty", "D", 1, "s0", time.Second, again(func() { testenv.Must(t, os.RemoveAll(data)) })},
		fault{"restart with old data", "D", 1, "s0", time.Second, again(func() {
			if _, err := os.Stat(backup); err != nil {
				testenv.Must(t, os.CopyFS(backup, os.DirFS(data)))
				return
			}
			testenv.Must(t, os.RemoveAll(data))
			testenv.Must(t, os.CopyFS(data, os.DirFS(backup)))
		})},
		fault{"flush", "D", 1, "s0", 0, func(time.Duration) func() { top.command(s, "flushall"); return nil }},
		fault{"eviction", "D", 1, "s0", 100 * time.Millisecond, func(time.Duration) func() {
			rdb := s.Client()
			defer rdb.Close()
			used := rdb.InfoMap(context.WithoutCancel(t.Context()), "memory").Item("Memory", "used_memory")
			most, _ := strconv.Atoi(used)
			top.command(s, "config set maxmemory-policy allkeys-random", fmt.Sprint("config set maxmemory ", max(1, most-2000)))
			return func() { top.command(s, "config set maxmemory 0 maxmemory-policy noeviction") }
		}})
	return top
}

// replica is a primary and one replica, which acknowledges all grants, behind one address that moves in a failover.
func replica(t testing.TB, _ time.Duration) *topology {
	t.Helper()
	primary := servers.Redis(t, durable...)
	next := servers.Redis(t, append(slices.Clone(durable), primary.ReplicaOf())...)
	front := newProxy(t, primary.Addr())
	top := &topology{
		t: t, urls: []string{"redis://" + front.address()}, addresses: []string{front.address()}, replicas: 1, together: 1,
		servers: []*servers.RedisServer{primary, next},
	}
	top.linked()
	top.faults = append(top.server("s", func() *servers.RedisServer { return primary }),
		fault{"freeze replica", "S", 2, "s", 2 * time.Second, freeze(func() *servers.RedisServer { return next })},
		fault{"failover", "S", 6, "s", time.Second, func(time.Duration) func() {
			primary.Kill()
			primary, next = next, primary
			top.command(primary, "replicaof no one", "config rewrite")
			front.move(primary.Addr())
			return func() {
				next.Restart(t)
				top.command(next, primary.ReplicaOf(), "config rewrite")
				top.linked()
			}
		}})
	return top
}

// freeze returns a fault of the server that is present at the moment.
func freeze(present func() *servers.RedisServer) func(time.Duration) func() {
	return func(time.Duration) func() {
		s := present()
		s.Pause()
		return s.Resume
	}
}

// server returns the faults that each server may have. present returns the server with that name at the moment.
func (top *topology) server(name string, present func() *servers.RedisServer) []fault {
	do := func(commands ...string) func(time.Duration) func() {
		return func(time.Duration) func() {
			top.command(present(), commands...)
			return nil
		}
	}
	set := func(begin, end string) func(time.Duration) func() {
		return func(time.Duration) func() {
			s := present()
			top.command(s, begin)
			return func() { top.command(s, end) }
		}
	}
	return []fault{
		{"freeze server", "S", 4, name, 2 * time.Second, freeze(present)},
		{"forget scripts", "S", 3, name, 0, do("script flush")},
		{"end connections", "S", 3, name, 0, do("client kill type normal", "client kill type pubsub")},
		{"debug sleep", "S", 2, name, 0, do("debug sleep 0.7")},
		{"client pause", "S", 2, name, time.Second, func(lasts time.Duration) func() {
			top.command(present(), fmt.Sprint("client pause ", lasts.Milliseconds(), " all"))
			return func() {}
		}},
		{"writes refused", "S", 2, name, time.Second, set("config set min-replicas-to-write 9", "config set min-replicas-to-write 0")},
		{"out of memory", "S", 2, name, time.Second, set("config set maxmemory 1", "config set maxmemory 0")},
		{"a missing right", "S", 3, name, time.Second, func(lasts time.Duration) func() {
			command := []string{"evalsha", "subscribe", "publish", "time"}[lasts%4]
			return set("acl setuser default -"+command, "acl setuser default +"+command)(lasts)
		}},
		{"too many clients", "S", 2, name, time.Second, func(time.Duration) func() {
			rdb := present().Client() // one connection, as no other one may be allowed
			ctx := context.WithoutCancel(top.t.Context())
			rdb.ConfigSet(ctx, "maxclients", "1")
			rdb.Do(ctx, "client", "kill", "type", "normal", "skipme", "yes")
			return func() {
				rdb.ConfigSet(ctx, "maxclients", "10000")
				rdb.Close()
			}
		}},
	}
}

// sentinel is a primary with two replicas and three Sentinels.
func sentinel(t testing.TB, delay time.Duration) *topology {
	t.Helper()
	primary := servers.Redis(t, durable...)
	top := &topology{t: t, delay: delay, together: 1, servers: []*servers.RedisServer{primary}}
	for range 2 {
		top.servers = append(top.servers, servers.Redis(t, append(slices.Clone(durable), primary.ReplicaOf())...))
	}
	for range 3 {
		s := servers.Sentinel(t, watched, primary.Addr(), 2, "sentinel failover-timeout "+watched+" 1000")
		top.sentinels = append(top.sentinels, s)
		top.addresses = append(top.addresses, s.Addr())
	}
	top.urls = []string{"redis+sentinel://" + strings.Join(top.addresses, ",") + "/0?master=" + watched}
	for _, s := range top.servers {
		top.addresses = append(top.addresses, s.Addr())
	}
	for _, s := range top.sentinels {
		top.until("the Sentinels know all servers", func() bool {
			state := top.master(s)
			return state["num-slaves"] == "2" && state["num-other-sentinels"] == "2"
		})
	}
	top.linked()
	top.faults = append(top.server("s", top.primary),
		fault{"planned failover", "D", 4, "s", 0, func(time.Duration) func() {
			top.promote(top.primary())
			return top.linked
		}},
		fault{"failover", "D", 4, "s", 0, func(time.Duration) func() {
			old := top.primary()
			old.Kill()
			top.promote(old)
			old.Restart(t)
			top.command(old, top.primary().ReplicaOf(), "config rewrite") // a Sentinel does so after 8 s
			return top.linked
		}},
		fault{"freeze replica", "S", 2, "s", 2 * time.Second, freeze(func() *servers.RedisServer {
			return top.servers[(slices.Index(top.servers, top.primary())+1)%3]
		})},
		fault{"freeze Sentinel", "S", 2, "s", 2 * time.Second, freeze(func() *servers.RedisServer { return top.sentinels[0] })})
	return top
}

func (top *topology) master(s *servers.RedisServer) map[string]string {
	rdb := redis.NewSentinelClient(s.Client().Options())
	defer rdb.Close()
	return rdb.Master(context.WithoutCancel(top.t.Context()), watched).Val()
}

// primary returns the server that Sentinels name.
func (top *topology) primary() *servers.RedisServer {
	state := top.master(top.sentinels[1])
	at := net.JoinHostPort(state["ip"], state["port"])
	return top.servers[max(0, slices.IndexFunc(top.servers, func(s *servers.RedisServer) bool { return s.Addr() == at }))]
}

// promote makes a replica the primary, and returns when all Sentinels name it.
func (top *topology) promote(old *servers.RedisServer) {
	for i, s := range top.sentinels {
		top.until("a replica is promoted", func() bool {
			state := top.master(s)
			next := net.JoinHostPort(state["ip"], state["port"])
			if i == 0 && next == old.Addr() && !strings.Contains(state["flags"], "failover_in_progress") {
				top.command(s, "sentinel failover "+watched)
			}
			return state != nil && next != old.Addr()
		})
	}
}

// linked waits until all replicas follow a primary.
func (top *topology) linked() {
	top.until("all replicas are linked", func() bool {
		n := max(1, top.shards)
		primaries, links := 0, 0
		for _, s := range top.servers {
			switch info := top.replication(s); {
			case strings.Contains(info, "role:master") && strings.Count(info, "state=online") == len(top.servers)/n-1:
				primaries++
			case strings.Contains(info, "master_link_status:up"):
				links++
			}
		}
		return primaries == n && links == len(top.servers)-n
	})
}

func (top *topology) replication(s *servers.RedisServer) string {
	rdb := s.Client()
	defer rdb.Close()
	return rdb.Info(context.WithoutCancel(top.t.Context()), "replication").Val()
}

func (top *topology) until(what string, holds func() bool) {
	top.t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 2*patience {
			top.t.Errorf("timed out waiting until %s", what)
			return
		}
	}
}

// cluster is a Redis Cluster of three primaries, each with a replica. The faults are those of the primary with the
// mutex.
func cluster(t testing.TB, _ time.Duration) *topology {
	t.Helper()
	c := servers.Cluster(t, 3, 3, append(slices.Clone(durable), "cluster-node-timeout 5000")...)
	top := &topology{
		t: t, shards: 3, together: 1, servers: slices.Concat(c.Primaries, c.Replicas),
		urls: []string{"redis+cluster://" + strings.Join(c.Addrs(), ",")}, addresses: c.Addrs(),
	}
	ctx := context.WithoutCancel(t.Context())
	of := func(index int) (now, next *servers.RedisServer) {
		now, next = c.Primaries[index], c.Replicas[index]
		if !strings.Contains(top.replication(now), "role:master") {
			now, next = next, now
		}
		return now, next
	}
	owner := func() int {
		for i := range c.Primaries {
			now, _ := of(i)
			rdb := now.Client()
			defer rdb.Close()
			if rdb.Exists(ctx, "{orders}").Err() == nil { // others answer with the address of the owner
				return i
			}
		}
		return 0
	}
	promote := func(how string) func(time.Duration) func() {
		return func(time.Duration) func() {
			old, next := of(owner())
			if how == "takeover" {
				old.Kill()
			}
			sent := time.Time{}
			top.until("the replica is promoted", func() bool {
				if time.Since(sent) > time.Second { // the others vote once in two timeouts
					top.command(next, "cluster failover "+how)
					sent = time.Now()
				}
				return strings.Contains(top.replication(next), "role:master")
			})
			if how == "takeover" {
				old.Restart(t)
			}
			return top.linked
		}
	}
	top.faults = append(top.server("s", func() *servers.RedisServer { now, _ := of(owner()); return now }),
		fault{"planned failover", "S", 4, "s", 0, promote("")},
		fault{"forced failover", "D", 2, "s", 0, promote("force")},
		fault{"failover", "D", 2, "s", 0, promote("takeover")},
		fault{"slot moves", "S", 6, "s", 0, func(time.Duration) func() {
			from, _ := of(owner())
			to, _ := of((owner() + 1) % 3)
			ids := to.Client()
			defer ids.Close()
			there := ids.ClusterMyID(ctx).Val()
			old := from.Client()
			defer old.Close()
			slot := int(old.ClusterKeySlot(ctx, "{orders}").Val())
			top.command(to, fmt.Sprint("cluster setslot ", slot, " importing ", old.ClusterMyID(ctx).Val()))
			top.command(from, fmt.Sprint("cluster setslot ", slot, " migrating ", there))
			host, port, _ := net.SplitHostPort(to.Addr())
			for {
				keys := old.ClusterGetKeysInSlot(ctx, slot, 100).Val()
				if len(keys) == 0 {
					break
				}
				top.command(from, fmt.Sprint("migrate ", host, " ", port, " \"\" 0 5000 keys ", strings.Join(keys, " ")))
			}
			for _, s := range []*servers.RedisServer{to, from} {
				top.command(s, fmt.Sprint("cluster setslot ", slot, " node ", there))
			}
			return nil
		}})
	return top
}

// quorum is five servers of which a minority has faults.
func quorum(t testing.TB, _ time.Duration) *topology {
	t.Helper()
	top := &topology{t: t, quorum: true, together: 2}
	for i := range 5 {
		s := servers.Redis(t, "enable-debug-command yes")
		top.servers = append(top.servers, s)
		top.urls = append(top.urls, "redis://"+s.Addr())
		top.addresses = append(top.addresses, s.Addr())
		name := fmt.Sprint("s", i)
		top.faults = append(top.faults, top.server(name, func() *servers.RedisServer { return s })...)
		top.faults = append(top.faults,
			fault{"restart empty", "S", 4, name, time.Second, func(time.Duration) func() {
				s.Kill()
				return func() {
					s.Restart(t)
					top.grants(s)
				}
			}},
			fault{"flush", "S", 2, name, 0, func(time.Duration) func() {
				top.command(s, "flushall")
				return func() { top.grants(s) }
			}})
	}
	return top
}

// etcd is one etcd.
func etcd(t testing.TB, _ time.Duration) *topology {
	t.Helper()
	s := servers.Etcd(t, true)
	top := &topology{t: t, urls: []string{"http://" + s.Addr()}, addresses: []string{s.Addr()}, together: 1}
	top.faults = []fault{
		{"freeze server", "S", 4, "s0", 2 * time.Second, func(time.Duration) func() {
			s.Pause()
			return s.Resume
		}},
		{"restart with data", "S", 4, "s0", time.Second, func(time.Duration) func() {
			s.Kill()
			return func() { s.Restart(t) }
		}},
	}
	return top
}

// grants waits until a server of a quorum grants locks again.
func (top *topology) grants(s *servers.RedisServer) {
	rdb := s.Client()
	defer rdb.Close()
	ctx := context.WithoutCancel(top.t.Context())
	top.until("the server is let in", func() bool {
		marker := rdb.HGetAll(ctx, "noonlock:quorum").Val()
		after, err := strconv.ParseInt(marker["after"], 10, 64)
		member := strings.Contains(rdb.Info(ctx, "server").Val(), "run_id:"+marker["run"])
		return err == nil && member && rdb.Time(ctx).Val().UnixMilli() >= after
	})
}
