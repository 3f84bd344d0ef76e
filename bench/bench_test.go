package bench_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// compareAndDelete is the usual release of a simple Redis lock.
var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

type bench struct {
	b      *testing.B
	server *servers.RedisServer
	rdb    *redis.Client
}

func start(b *testing.B) *bench {
	b.Helper()
	server := servers.Redis(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64})
	b.Cleanup(func() { _ = rdb.Close() })
	return &bench{b, server, rdb}
}

func (x *bench) client() *lockcore.Client {
	x.b.Helper()
	c, err := lockcore.New(x.rdb, lockcore.Config{})
	if err != nil {
		x.b.Fatal(err)
	}
	x.b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			x.b.Error(err)
		}
	})
	return c
}

func (x *bench) mutex(c *lockcore.Client, name string, cfg lockcore.LeaseConfig) *lockcore.Mutex {
	x.b.Helper()
	m, err := c.Mutex(name, cfg)
	if err != nil {
		x.b.Fatal(err)
	}
	return m
}

func (x *bench) cycle(ctx context.Context, m *lockcore.Mutex) {
	lease, err := m.Lock(ctx)
	if err == nil {
		err = lease.Unlock(ctx)
	}
	if err != nil {
		x.b.Error(err)
	}
}

func (x *bench) rawCycle(ctx context.Context, key string) {
	if err := x.rdb.SetArgs(ctx, key, "holder", redis.SetArgs{Mode: "NX", TTL: 10 * time.Second}).Err(); err != nil {
		x.b.Error(err)
	}
	if err := compareAndDelete.Run(ctx, x.rdb, []string{key}, "holder").Err(); err != nil {
		x.b.Error(err)
	}
}

func (x *bench) ping(ctx context.Context) {
	if err := x.rdb.Ping(ctx).Err(); err != nil {
		x.b.Error(err)
	}
}

// calls returns how many commands the Clients have sent. commandstats also counts the commands
// inside scripts, so only commands that scripts cannot call are counted.
func (x *bench) calls(ctx context.Context) (total int) {
	stats, err := x.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		x.b.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		for _, name := range []string{"evalsha", "eval"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				n, _, _ := strings.Cut(rest, ",")
				count, err := strconv.Atoi(n)
				if err != nil {
					x.b.Fatal(err)
				}
				total += count
			}
		}
	}
	return total
}

// keep writes the raw samples (ns) as rows of a CSV file, in the order of measurement.
func (x *bench) keep(columns map[string][]float64) {
	dir := os.Getenv("NOONLOCK_BENCH_DIR")
	if dir == "" {
		dir = "results"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		x.b.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, strings.ReplaceAll(x.b.Name(), "/", "_")+".csv"))
	if err != nil {
		x.b.Fatal(err)
	}
	defer file.Close()
	w := csv.NewWriter(file)
	for name, samples := range columns {
		row := []string{name}
		for _, s := range samples {
			row = append(row, strconv.FormatFloat(s, 'f', 0, 64))
		}
		if err := w.Write(row); err != nil {
			x.b.Fatal(err)
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		x.b.Fatal(err)
	}
}

// median returns the median of samples, which it sorts.
func median(samples []float64) float64 {
	slices.Sort(samples)
	return samples[len(samples)/2]
}

// ratio returns the median of the ratios of samples taken side by side, so that other load of
// the machine affects both.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}

// each runs f n times and returns the mean duration.
func each(n int, f func()) float64 {
	began := time.Now()
	for range n {
		f()
	}
	return float64(time.Since(began)) / float64(n)
}

const (
	pairs = 100 // blocks of each kind, alternating
	block = 100 // cycles in a block
)

// BenchmarkLockUnlock: one goroutine, no contention.
func BenchmarkLockUnlock(b *testing.B) {
	x := start(b)
	ctx := b.Context() // cancellable, as in an application
	m := x.mutex(x.client(), "bench", lockcore.LeaseConfig{})
	kinds := map[string]func(){
		"noonlock": func() { x.cycle(ctx, m) },
		"raw":      func() { x.rawCycle(ctx, "raw") },
		"ping":     func() { x.ping(ctx) },
	}
	for b.Loop() {
		samples := map[string][]float64{}
		for _, f := range kinds {
			each(block, f) // warm up
		}
		before := x.calls(ctx)
		each(block, kinds["noonlock"])
		commands := float64(x.calls(ctx)-before) / block
		for range pairs {
			for name, f := range kinds { // in random order
				samples[name] = append(samples[name], each(block, f))
			}
		}
		x.keep(samples)
		b.ReportMetric(ratio(samples["noonlock"], samples["raw"]), "x_raw")
		b.ReportMetric(ratio(samples["noonlock"], samples["ping"]), "x_ping")
		b.ReportMetric(median(samples["noonlock"])/1e3, "us/cycle")
		b.ReportMetric(median(samples["ping"])/1e3, "us/ping")
		b.ReportMetric(commands, "commands/cycle")
	}
}

// BenchmarkDistinct64: 64 goroutines with separate names.
func BenchmarkDistinct64(b *testing.B) {
	x := start(b)
	ctx := b.Context()
	c := x.client()
	const goroutines, cycles = 64, 60
	all := func(cycle func(i int)) float64 {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for range cycles {
					cycle(i)
				}
			})
		}
		wg.Wait()
		return float64(time.Since(began)) / (goroutines * cycles)
	}
	mutexes := make([]*lockcore.Mutex, goroutines)
	for i := range mutexes {
		mutexes[i] = x.mutex(c, "bench"+strconv.Itoa(i), lockcore.LeaseConfig{})
	}
	kinds := map[string]func(i int){
		"noonlock": func(i int) { x.cycle(ctx, mutexes[i]) },
		"raw":      func(i int) { x.rawCycle(ctx, "raw"+strconv.Itoa(i)) },
		"ping":     func(int) { x.ping(ctx) },
	}
	for b.Loop() {
		samples := map[string][]float64{}
		for _, f := range kinds {
			all(f)
		}
		for range pairs / 4 {
			for name, f := range kinds {
				samples[name] = append(samples[name], all(f))
			}
		}
		x.keep(samples)
		b.ReportMetric(ratio(samples["raw"], samples["noonlock"]), "x_raw_cycles/s")
		b.ReportMetric(ratio(samples["noonlock"], samples["ping"]), "x_ping")
	}
}

// BenchmarkHandOver: from Unlock to the return of the next holder, with other waiters in the queue.
func BenchmarkHandOver(b *testing.B) {
	for _, waiters := range []int{2, 500} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) { handOver(b, waiters) })
	}
}

func handOver(b *testing.B, waiters int) {
	b.Helper()
	x := start(b)
	ctx := b.Context()
	// Half of the waiters use each of two clients, so most hand-overs cross clients.
	clients := []*lockcore.Client{x.client(), x.client()}
	const rounds = 1500
	line := func(n int64) {
		for x.rdb.ZCard(ctx, "noonlock:{bench}:queue").Val() < n {
			runtime.Gosched()
		}
	}
	for b.Loop() {
		var took, pings []float64
		var unlocked time.Time // written by one holder, read by the next
		var order []int
		var before, commands int
		var wg sync.WaitGroup
		for i := range waiters + 1 {
			m := x.mutex(clients[i%2], "bench", lockcore.LeaseConfig{})
			wg.Go(func() {
				for {
					lease, err := m.Lock(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					now := time.Now()
					switch n := len(order); {
					case n == 0:
						line(int64(waiters))
						before = x.calls(ctx)
					case n <= rounds:
						took = append(took, float64(now.Sub(unlocked)))
						line(int64(waiters)) // the last holder has queued again
						pings = append(pings, each(1, func() { x.ping(ctx) }))
						if n == rounds {
							commands = x.calls(ctx) - before
						}
					}
					order = append(order, i)
					last := len(order) > rounds
					unlocked = time.Now()
					if err := lease.Unlock(ctx); err != nil {
						b.Error(err)
					}
					if last {
						return
					}
				}
			})
		}
		wg.Wait()
		x.keep(map[string][]float64{"handover": took, "ping": pings})
		b.ReportMetric(median(took)/median(pings), "x_ping")
		b.ReportMetric(median(took)/1e3, "us/handover")
		b.ReportMetric(float64(commands)/rounds, "commands/handover")
		b.ReportMetric(float64(outOfTurn(order[:rounds], waiters+1)), "out_of_turn")
	}
}

// outOfTurn counts holders that were served before earlier waiters: each holder queues again
// behind all others.
func outOfTurn(order []int, every int) (count int) {
	for at := every; at < len(order); at++ {
		if order[at] != order[at-every] {
			count++
		}
	}
	return count
}

// BenchmarkLeases5000: the cost of holding and renewing leases.
func BenchmarkLeases5000(b *testing.B) {
	x := start(b)
	ctx := context.Background()
	const leases, ttl = 5000, 6 * time.Second
	for b.Loop() {
		base := runtime.NumGoroutine()
		heap := heapInUse()
		c := x.client()
		held := make([]*lockcore.Lease, leases)
		var wg sync.WaitGroup
		for part := range 50 {
			wg.Go(func() {
				for i := part; i < leases; i += 50 {
					m := x.mutex(c, "bench"+strconv.Itoa(i), lockcore.LeaseConfig{TTL: ttl})
					lease, err := m.TryLock(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					held[i] = lease
				}
			})
		}
		wg.Wait()
		perLease := float64(heapInUse()-heap) / leases
		goroutines := runtime.NumGoroutine() - base
		timer := time.NewTimer(3 * ttl)
		<-timer.C
		lost := 0
		for _, lease := range held {
			if lease.Context().Err() != nil {
				lost++
			}
		}
		b.ReportMetric(perLease, "bytes/lease")
		b.ReportMetric(float64(goroutines), "goroutines")
		b.ReportMetric(float64(lost), "lost")
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
