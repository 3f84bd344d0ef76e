package bench_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// BenchmarkQuorum: one goroutine without contention locks and unlocks on five servers. Raw sends
// SET NX PX to all five in parallel, and then a compare-and-delete script, and waits for all.
func BenchmarkQuorum(b *testing.B) {
	ctx := b.Context()
	var all []*redis.Client
	var clients []redis.UniversalClient
	for range 5 {
		rdb := redis.NewClient(&redis.Options{Addr: servers.Redis(b).Addr()})
		b.Cleanup(func() { _ = rdb.Close() })
		all, clients = append(all, rdb), append(clients, rdb)
	}
	c, err := lockcore.NewQuorum(clients, lockcore.QuorumConfig{MaxTTL: time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	mutex := func(name string) *lockcore.Mutex {
		m, err := c.Mutex(name, lockcore.LeaseConfig{TTL: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	m := mutex("bench")
	everywhere := func(send func(rdb *redis.Client) error) {
		var wg sync.WaitGroup
		for _, rdb := range all {
			wg.Go(func() {
				if err := send(rdb); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	var lease *lockcore.Lease
	// Each kind acquires and then releases.
	kinds := map[string][2]func(){
		"noonlock": {func() {
			if lease, err = m.Lock(ctx); err != nil {
				b.Fatal(err)
			}
		}, func() {
			if err := lease.Unlock(ctx); err != nil {
				b.Fatal(err)
			}
		}},
		"raw": {func() {
			everywhere(func(rdb *redis.Client) error {
				return rdb.SetArgs(ctx, "raw", "holder", redis.SetArgs{Mode: "NX", TTL: time.Second}).Err()
			})
		}, func() {
			everywhere(func(rdb *redis.Client) error {
				return compareAndDelete.Run(ctx, rdb, []string{"raw"}, "holder").Err()
			})
		}},
	}
	const cycles = 20 // in a block
	for b.Loop() {
		samples := map[string][]float64{}
		for n := range pairs + 1 {
			for name, f := range kinds {
				var took [2]float64
				for range cycles {
					for i := range f {
						took[i] += each(1, f[i]) / cycles
					}
				}
				if n > 0 { // the first one warms up
					samples[name+" acquire"] = append(samples[name+" acquire"], took[0])
					samples[name+" release"] = append(samples[name+" release"], took[1])
				}
			}
		}
		x := &bench{b: b}
		x.keep(samples)
		b.ReportMetric(ratio(samples["noonlock acquire"], samples["raw acquire"]), "x_raw_acquire")
		b.ReportMetric(ratio(samples["noonlock release"], samples["raw release"]), "x_raw_release")
		b.ReportMetric(median(samples["raw acquire"])/1e3, "us/raw_acquire")
		for _, locks := range []int{10, 1000} {
			held := make([]*lockcore.Lease, locks)
			for i := range held {
				if held[i], err = mutex(strconv.Itoa(i)).Lock(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines/"+strconv.Itoa(locks)+"_locks")
			for _, l := range held {
				_ = l.Unlock(ctx)
			}
		}
	}
}
