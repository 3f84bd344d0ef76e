//go:build unix

package bench_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// A topology is where a lock is. All topologies are measured alternately.
type topology struct {
	*bench
	nodes   []*redis.Client // one for each server
	clients []*lockcore.Client
}

// topologies starts one server, a Sentinel of that server, and a cluster of three primaries. Each
// has two Clients.
func topologies(b *testing.B) map[string]*topology {
	b.Helper()
	x := start(b)
	node := func(addr string) *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	make2 := func(connect func() redis.UniversalClient, nodes ...*redis.Client) *topology {
		t := &topology{bench: x, nodes: nodes}
		for range 2 {
			rdb := connect()
			c, err := lockcore.New(rdb, lockcore.Config{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				_ = c.Close(context.Background())
				_ = rdb.Close()
			})
			t.clients = append(t.clients, c)
		}
		return t
	}
	const watched = "bench"
	sentinel := servers.Sentinel(b, watched, x.server.Addr(), 1)
	cluster := servers.Cluster(b, 3, 0)
	var nodes []*redis.Client
	for _, p := range cluster.Primaries {
		nodes = append(nodes, node(p.Addr()))
	}
	return map[string]*topology{
		"server": make2(func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: x.server.Addr()}) }, x.rdb),
		"sentinel": make2(func() redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: watched, SentinelAddrs: []string{sentinel.Addr()}})
		}, x.rdb),
		"cluster": make2(func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ClientName: "bench"})
		}, nodes...),
	}
}

// compare measures the topologies in random order, and reports the ratios to one server.
func compare(b *testing.B, all map[string]*topology, rounds int, measure func(t *topology, name string) float64) {
	b.Helper()
	for b.Loop() {
		samples := map[string][]float64{}
		for name, t := range all {
			measure(t, name) // warm up
		}
		for range rounds {
			for name, t := range all {
				samples[name] = append(samples[name], measure(t, name))
			}
		}
		all["server"].keep(samples)
		b.ReportMetric(ratio(samples["sentinel"], samples["server"]), "x_sentinel")
		b.ReportMetric(ratio(samples["cluster"], samples["server"]), "x_cluster")
		b.ReportMetric(median(samples["server"])/1e3, "us")
	}
}

// BenchmarkTopologies: a Sentinel and a cluster of three primaries, compared with one server.
func BenchmarkTopologies(b *testing.B) {
	ctx := context.Background()
	b.Run("lock and unlock", func(b *testing.B) {
		all := topologies(b)
		compare(b, all, pairs, func(t *topology, name string) float64 {
			m := t.mutex(t.clients[0], name, lockcore.LeaseConfig{})
			return each(block, func() { t.cycle(ctx, m) })
		})
	})
	b.Run("hand-over", func(b *testing.B) {
		all := topologies(b)
		compare(b, all, pairs, func(t *topology, name string) float64 { return t.handOvers(ctx, name, 20) })
	})
	// The rate depends on the number of cores. The CPU time of all servers does not.
	b.Run("64 goroutines", func(b *testing.B) {
		all := topologies(b)
		cpu, cycles := map[string]float64{}, 0.0
		compare(b, all, pairs/5, func(t *topology, name string) float64 {
			const goroutines, each = 64, 60
			before, began := t.cpu(ctx), time.Now()
			var wg sync.WaitGroup
			for i := range goroutines {
				m := t.mutex(t.clients[0], name+strconv.Itoa(i), lockcore.LeaseConfig{})
				wg.Go(func() {
					for range each {
						t.cycle(ctx, m)
					}
				})
			}
			wg.Wait()
			took := time.Since(began)
			cpu[name] += t.cpu(ctx) - before
			cycles += goroutines * each
			return float64(took) / (goroutines * each)
		})
		b.ReportMetric(cpu["cluster"]/cpu["server"], "x_cluster_server_cpu")
		b.ReportMetric(cpu["server"]*1e6/(cycles/float64(len(all))), "us_server_cpu/cycle")
	})
}

// handOvers returns the median time from Unlock to the return of the next holder in the other
// Client.
func (t *topology) handOvers(ctx context.Context, name string, n int) float64 {
	took := make([]float64, n)
	held, err := t.mutex(t.clients[0], name, lockcore.LeaseConfig{}).Lock(ctx)
	if err != nil {
		t.b.Fatal(err)
	}
	for i := range took {
		c := t.clients[(i+1)%2]
		next := make(chan *lockcore.Lease)
		var granted time.Time
		go func() {
			lease, err := t.mutex(c, name, lockcore.LeaseConfig{}).Lock(ctx)
			granted = time.Now()
			if err != nil {
				t.b.Error(err)
			}
			next <- lease
		}()
		for !t.waits(ctx, name) {
			runtime.Gosched()
		}
		unlocked := time.Now()
		if err := held.Unlock(ctx); err != nil {
			t.b.Fatal(err)
		}
		if held = <-next; held == nil {
			t.b.Fatal("not granted")
		}
		took[i] = float64(granted.Sub(unlocked))
	}
	if err := held.Unlock(ctx); err != nil {
		t.b.Fatal(err)
	}
	return median(took)
}

// waits reports whether a client waits for the lock.
func (t *topology) waits(ctx context.Context, name string) bool {
	for _, node := range t.nodes {
		if n, err := node.ZCard(ctx, "noonlock:{"+name+"}:queue").Result(); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// cpu returns the CPU time (s) of all servers.
func (t *topology) cpu(ctx context.Context) (total float64) {
	for _, node := range t.nodes {
		text, err := node.Info(ctx, "cpu").Result()
		if err != nil {
			t.b.Fatal(err)
		}
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if key == "used_cpu_sys" || key == "used_cpu_user" {
				seconds, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.b.Fatal(err)
				}
				total += seconds
			}
		}
	}
	return total
}

// BenchmarkClusterLeases10000: leases of one Client on three primaries are renewed for 30 s. A
// Client has 4 connections for requests at each node, no subscription here, and opens further
// ones for renewals only while a pipeline is unanswered.
func BenchmarkClusterLeases10000(b *testing.B) {
	ctx := context.Background()
	const leases, length = 10_000, 30 * time.Second
	t := topologies(b)["cluster"]
	for b.Loop() {
		var wg sync.WaitGroup
		held := make([]*lockcore.Lease, leases)
		for part := range 50 {
			wg.Go(func() {
				for i := part; i < leases; i += 50 {
					var err error
					if held[i], err = t.mutex(t.clients[0], fmt.Sprint("lease", i), lockcore.LeaseConfig{TTL: 10 * time.Second}).TryLock(ctx); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if b.Failed() {
			return
		}
		before := processorTime(b)
		timer := time.NewTimer(length)
		<-timer.C
		core := (processorTime(b) - before).Seconds() / length.Seconds()
		lost, most := 0, 0
		for _, lease := range held {
			if lease.Context().Err() != nil {
				lost++
			}
		}
		for _, node := range t.nodes {
			list, err := node.ClientList(ctx).Result()
			if err != nil {
				b.Fatal(err)
			}
			most = max(most, strings.Count(list, " name=bench ")-4)
		}
		for _, lease := range held {
			wg.Go(func() { _ = lease.Unlock(ctx) })
		}
		wg.Wait()
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(float64(most), "renewal_connections/node")
		b.ReportMetric(100*core, "%core")
	}
}
