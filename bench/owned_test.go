//go:build unix

package bench_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A taker acquires a lock of any kind, or one side of it.
type taker func(ctx context.Context) (*lockcore.Lease, error)

func (x *bench) reentrant(c *lockcore.Client, name, owner string) *lockcore.ReentrantMutex {
	x.b.Helper()
	m, err := c.ReentrantMutex(name, owner, lockcore.LeaseConfig{})
	if err != nil {
		x.b.Fatal(err)
	}
	return m
}

func (x *bench) rw(c *lockcore.Client, name, owner string) *lockcore.RWMutex {
	x.b.Helper()
	m, err := c.RWMutex(name, owner, lockcore.RWConfig{})
	if err != nil {
		x.b.Fatal(err)
	}
	return m
}

func (x *bench) take(ctx context.Context, take taker) *lockcore.Lease {
	x.b.Helper()
	lease, err := take(ctx)
	if err != nil {
		x.b.Fatal(err)
	}
	return lease
}

// BenchmarkOwned: entry and exit of the locks with owners, with one goroutine. The lock is free,
// or the owner or another reader already holds it.
func BenchmarkOwned(b *testing.B) {
	x := start(b)
	ctx := b.Context()
	c := x.client()
	x.take(ctx, x.reentrant(c, "nested", "me").TryLock)
	x.take(ctx, x.rw(c, "shared", "other").TryRLock)
	cycles := map[string]taker{
		"reentrant": x.reentrant(c, "entered", "me").Lock,
		"nested":    x.reentrant(c, "nested", "me").Lock,
		"write":     x.rw(c, "written", "me").Lock,
		"read":      x.rw(c, "read", "me").RLock,
		"shared":    x.rw(c, "shared", "me").RLock,
	}
	kinds := map[string]func(){"raw": func() { x.rawCycle(ctx, "raw") }}
	for name, take := range cycles {
		kinds[name] = func() {
			lease, err := take(ctx)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			if err != nil {
				b.Error(err)
			}
		}
	}
	for b.Loop() {
		samples := map[string][]float64{}
		for _, f := range kinds {
			each(block, f) // warm up
		}
		before := x.calls(ctx)
		each(block, kinds["nested"])
		commands := float64(x.calls(ctx)-before) / block
		for range pairs {
			for name, f := range kinds { // in random order
				samples[name] = append(samples[name], each(block, f))
			}
		}
		x.keep(samples)
		for name := range cycles {
			b.ReportMetric(ratio(samples[name], samples["raw"]), name+"_x_raw")
		}
		b.ReportMetric(commands, "commands/cycle")
	}
}

// BenchmarkWriterBehindReaders: 100 readers hold a lock and 1 writer is queued, while more
// readers arrive. It reports the time from the last release of the 100 to the writer's grant in
// pings, and the number of later readers that overtook the writer.
func BenchmarkWriterBehindReaders(b *testing.B) {
	x := start(b)
	ctx := b.Context()
	c := x.client()
	const readers, rounds = 100, 40
	var took, pings []float64
	for b.Loop() {
		passed := 0
		for round := range rounds {
			name := "rw" + strconv.Itoa(round)
			held := make([]*lockcore.Lease, readers)
			for i := range held {
				held[i] = x.take(ctx, x.rw(c, name, "reader"+strconv.Itoa(i)).RLock)
			}
			in := func(n int64) {
				for x.rdb.ZCard(ctx, "noonlock:{"+name+"}:queue").Val() < n {
					continue
				}
			}
			served := make(chan time.Time, 1)
			var wg sync.WaitGroup
			writing := make(chan struct{})
			wg.Go(func() {
				lease, err := x.rw(c, name, "writer").Lock(ctx)
				served <- time.Now()
				if err != nil {
					b.Error(err)
					return
				}
				<-writing
				if err := lease.Unlock(ctx); err != nil {
					b.Error(err)
				}
			})
			in(1)
			for i := range readers { // these readers queue behind the writer
				wg.Go(func() {
					lease, err := x.rw(c, name, "late"+strconv.Itoa(i)).RLock(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					select {
					case <-writing:
					default:
						b.Error("a reader passed the writer")
					}
					if err := lease.Unlock(ctx); err != nil {
						b.Error(err)
					}
				})
			}
			in(1 + readers)
			for _, lease := range held[1:] {
				if err := lease.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
			if len(served) > 0 {
				passed++
			}
			pings = append(pings, each(1, func() { x.ping(ctx) }))
			gone := time.Now()
			if err := held[0].Unlock(ctx); err != nil {
				b.Fatal(err)
			}
			took = append(took, float64((<-served).Sub(gone)))
			close(writing)
			wg.Wait()
		}
		x.keep(map[string][]float64{"writer": took, "ping": pings})
		b.ReportMetric(median(took)/median(pings), "x_ping")
		b.ReportMetric(median(took)/1e3, "us/writer")
		b.ReportMetric(float64(passed), "came_before_the_last_reader_left")
	}
}

// BenchmarkLine: client commands per hand-over with 2 and with 1,000 waiters, for each kind. The
// TTL is so long that no waiter refreshes its place in between.
func BenchmarkLine(b *testing.B) {
	for _, kind := range []string{"mutex", "reentrant", "write"} {
		for _, waiters := range []int{2, 1000} {
			b.Run(kind+"/waiters="+strconv.Itoa(waiters), func(b *testing.B) { line(b, kind, waiters) })
		}
	}
}

func line(b *testing.B, kind string, waiters int) {
	b.Helper()
	x := start(b)
	ctx := b.Context()
	clients := []*lockcore.Client{x.client(), x.client()}
	cfg := lockcore.LeaseConfig{TTL: time.Hour}
	taker := func(i int) taker {
		c, owner := clients[i%2], "owner"+strconv.Itoa(i)
		switch kind {
		case "reentrant":
			m, err := c.ReentrantMutex("bench", owner, cfg)
			if err != nil {
				b.Fatal(err)
			}
			return m.Lock
		case "write":
			m, err := c.RWMutex("bench", owner, lockcore.RWConfig{Write: cfg})
			if err != nil {
				b.Fatal(err)
			}
			return m.Lock
		}
		return x.mutex(c, "bench", cfg).Lock
	}
	for b.Loop() {
		const rounds = 1000
		before, commands, n := 0, 0, 0 // written by the holder
		var wg sync.WaitGroup
		for i := range waiters + 1 {
			take := taker(i)
			wg.Go(func() {
				for {
					lease, err := take(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					for n == 0 && x.rdb.ZCard(ctx, "noonlock:{bench}:queue").Val() < int64(waiters) {
						continue
					}
					switch n++; n {
					case 1:
						before = x.calls(ctx)
					case rounds + 1:
						commands = x.calls(ctx) - before
					}
					last := n > rounds
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
		b.ReportMetric(float64(commands)/rounds, "commands/handover")
	}
}

// BenchmarkLeases10000: renewals with a TTL of 10 s for a minute, as a fraction of one core, by
// the processor time of the process.
func BenchmarkLeases10000(b *testing.B) {
	for _, kind := range []string{"mutex", "read"} {
		b.Run(kind, func(b *testing.B) { leases10000(b, kind) })
	}
}

func leases10000(b *testing.B, kind string) {
	b.Helper()
	x := start(b)
	ctx := b.Context()
	const leases, lasts = 10_000, time.Minute
	cfg := lockcore.LeaseConfig{TTL: 10 * time.Second}
	for b.Loop() {
		c := x.client()
		held := make([]*lockcore.Lease, leases)
		var wg sync.WaitGroup
		for part := range 50 {
			wg.Go(func() {
				for i := part; i < leases; i += 50 {
					name := "bench" + strconv.Itoa(i)
					take := x.mutex(c, name, cfg).TryLock
					if kind == "read" {
						rw, err := c.RWMutex(name, "me", lockcore.RWConfig{Read: cfg})
						if err != nil {
							b.Error(err)
							return
						}
						take = rw.TryRLock
					}
					lease, err := take(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					held[i] = lease
				}
			})
		}
		wg.Wait()
		cpu, began := processorTime(b), time.Now()
		timer := time.NewTimer(lasts)
		<-timer.C
		share := float64(processorTime(b)-cpu) / float64(time.Since(began))
		lost := 0
		for _, lease := range held {
			if lease == nil || lease.Context().Err() != nil {
				lost++
			}
		}
		b.ReportMetric(100*share, "%core")
		b.ReportMetric(float64(lost), "lost")
	}
}
