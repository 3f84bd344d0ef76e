package cluster_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
)

// connectCluster returns a Wire to the cluster of these nodes, each with these options. It is closed at the end of the
// test.
func connectCluster(t *testing.T, opt *redis.Options, failed func(wire.Request, error), seeds ...string) wire.Wire {
	t.Helper()
	opt.Addr = seeds[0]
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	w := cluster.New(*rdb.Options(), seeds, wire.Config{
		Channel: func(name string) string { return "{" + name + "}:to this process" }, Sharded: true,
		Now: func() time.Duration { return 0 }, Failed: failed, Message: func(string) {}, Missed: func(string) {},
		Relocated: func(func(string) bool) {},
	})
	t.Cleanup(w.Close)
	return w
}

// A script that deletes a key and writes it again does not run while the slot of the key
// moves: the node would refuse the second command, after the first was applied. A renewal runs where the key is.
func TestFault21_NoScriptRunsOnASlotThatMoves(t *testing.T) {
	t.Parallel()
	c := servers.Cluster(t, 2, 0)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	w := connectCluster(t, &redis.Options{}, func(wire.Request, error) {}, c.Addrs()...)
	loader := wire.NewLoader(fstest.MapFS{
		"lua/again.lua": {Data: []byte("redis.call('DEL', KEYS[1])\nredis.call('SET', KEYS[1], ARGV[1])\nreturn 1\n")},
		"lua/renew.lua": {Data: []byte("return redis.call('GET', KEYS[1])\n")},
	})
	again, renew := loader.Script("again"), loader.Script("renew")
	testenv.Must(t, loader.Err())
	const name, key, slot = "orders", "p:{orders}:key", 105
	send := func(value string) error {
		answer, err := w.Send(t.Context(), name, again.Call(wire.Keys(key), value), 10*time.Second)
		if err == nil && answer != int64(1) {
			t.Errorf("answer %v", answer)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	testenv.Must(t, send("first"))
	from, to := redis.NewClient(&redis.Options{Addr: c.Primaries[0].Addr()}), redis.NewClient(&redis.Options{Addr: c.Primaries[1].Addr()})
	defer from.Close()
	defer to.Close()
	do := func(rdb *redis.Client, args ...any) string {
		t.Helper()
		answer, err := rdb.Do(t.Context(), args...).Text()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return answer
	}
	source, target := do(from, "cluster", "myid"), do(to, "cluster", "myid")
	do(to, "cluster", "setslot", slot, "importing", source)
	do(from, "cluster", "setslot", slot, "migrating", target)
	for _, where := range []string{"at the source", "at the target"} {
		err := send("second")
		if v := wire.VerdictOf(err); !v.Retry || v.Operator {
			t.Errorf("%s: %v; want a refusal that is worth another try", where, err)
		}
		// At the target, the key has moved before its slot (ASK).
		a := w.Renewals(name).Send(ctx, []wire.Request{renew.Call(wire.Keys(key))})[0]
		if a.Err != nil || a.Value != "first" {
			t.Errorf("%s: the renewal is answered %v, %v", where, a.Value, a.Err)
		}
		host, port, _ := net.SplitHostPort(c.Primaries[1].Addr())
		do(from, "migrate", host, port, key, 0, 10000)
	}
	do(to, "cluster", "setslot", slot, "node", target)
	do(from, "cluster", "setslot", slot, "node", target)
	testenv.Equal(t, "the key", rdb.Get(t.Context(), key).Val(), "first")
	testenv.Must(t, send("third"))
	testenv.Equal(t, "the key after the move", rdb.Get(t.Context(), key).Val(), "third")
}

// A replica tells where the primaries are, but gets no other request. An address that never
// was a node, or refuses, delays nothing if another one answers.
func TestClusterIsFoundByAnyNode(t *testing.T) {
	t.Parallel()
	c := servers.Cluster(t, 3, 3)
	for what, seeds := range map[string][]string{
		"a replica":                {c.Replicas[0].Addr()},
		"a primary and a dead one": {"127.0.0.1:1", c.Primaries[2].Addr()},
	} {
		w := connectCluster(t, &redis.Options{}, func(r wire.Request, err error) { t.Errorf("%s: %s failed: %v", what, r.Name(), err) }, seeds...)
		for _, name := range []string{"a", "orders", "123456789", "job/x"} {
			if answer, err := w.Send(t.Context(), name, wire.Command("set", "p:{"+name+"}:key", 1), 10*time.Second); err != nil || answer != "OK" {
				t.Errorf("%s: %v, %v", what, answer, err)
			}
		}
	}
	// A plain server is no cluster. The error says so.
	w := connectCluster(t, &redis.Options{}, func(wire.Request, error) {}, servers.Redis(t).Addr())
	if _, err := w.Send(t.Context(), "orders", wire.Command("ping"), 10*time.Second); err == nil || !strings.Contains(err.Error(), "cluster support disabled") || wire.VerdictOf(err).Temporary {
		t.Errorf("a server that is no cluster: %v, temporary: %v", err, wire.VerdictOf(err).Temporary)
	}
}
