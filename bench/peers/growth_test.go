package peers_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// growth: what held leases and waiters cost noonlock. Each number has a server and a client of
// its own.
func growth(x *bench) {
	held := x.table("Held leases", "leases")
	waiting := x.table("Waiters of one name, which is held", "waiters")
	for range *repetitions {
		for _, n := range []int{1, 10, 100, 1_000, 10_000} {
			x.cost(held, n, func(ctx context.Context, c *lockcore.Client, _ *sync.WaitGroup) {
				const workers = 50
				var acquired sync.WaitGroup
				for w := range workers {
					acquired.Go(func() {
						for i := w; i < n; i += workers {
							x.acquire(ctx, c, "bench"+strconv.Itoa(i))
						}
					})
				}
				acquired.Wait()
			})
		}
		for _, n := range []int{1, 10, 100, 1_000} {
			x.cost(waiting, n, func(ctx context.Context, c *lockcore.Client, wg *sync.WaitGroup) {
				x.acquire(ctx, c, "bench")
				m, err := c.Mutex("bench", lockcore.LeaseConfig{})
				x.check(err)
				for range n {
					wg.Go(func() { _, _ = m.Lock(ctx) }) // until ctx ends
				}
			})
		}
	}
	x.report = append(x.report,
		&plot{"peers-leases.svg", "Cost of held leases", "leases", "per second, percent and MB", held.turned()},
		&plot{"peers-waiters.svg", "Cost of waiters of one name", "waiters", "per second, percent and MB", waiting.turned()},
	)
}

func (x *bench) acquire(ctx context.Context, c *lockcore.Client, name string) {
	m, err := c.Mutex(name, lockcore.LeaseConfig{})
	if err == nil {
		_, err = m.TryLock(ctx)
	}
	if err != nil {
		x.b.Error(err)
	}
}

// cost measures the processors for a third of a TTL, in which each lease is renewed once, and
// then counts the commands for another third: counting costs the server time.
func (x *bench) cost(t *table, n int, begin func(ctx context.Context, c *lockcore.Client, wg *sync.WaitGroup)) {
	x.b.Helper()
	const window = 10 * time.Second / 3
	s := x.serve(noonlock)
	heap, memory := heapInUse(), s.number("memory", "used_memory")
	rdb := newRedis(s.addr, options{})
	c, err := lockcore.New(rdb, lockcore.Config{})
	x.check(err)
	ctx, cancel := context.WithCancel(x.ctx())
	var wg sync.WaitGroup
	begin(ctx, c, &wg)
	sleep(ctx, time.Second)
	server, client := s.processor(), x.processor()
	sleep(ctx, window)
	server, client = s.processor()-server, x.processor()-client
	stop := s.count()
	sleep(ctx, window)
	sent, inside := stop()
	line := figure(float64(n))
	t.add(line, "commands a second", sent/window.Seconds())
	t.add(line, "commands inside scripts a second", inside/window.Seconds())
	t.add(line, "server CPU, %", 100*server/window.Seconds())
	t.add(line, "client CPU, %", 100*client/window.Seconds())
	t.add(line, "client MB", (heapInUse()-heap)/1e6)
	t.add(line, "server MB", (s.number("memory", "used_memory")-memory)/1e6)
	cancel()
	wg.Wait()
	_ = c.Close(context.Background())
	_ = rdb.Close()
	s.redis.Kill()
}

// turned returns the table with its lines as columns.
func (t *table) turned() *table {
	turned := &table{of: t.of, lines: t.columns, columns: t.lines, cells: map[[2]string][]float64{}}
	for at, samples := range t.cells {
		turned.cells[[2]string{at[1], at[0]}] = samples
	}
	return turned
}

// heapInUse returns the heap and the stacks after a garbage collection, in bytes.
func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
