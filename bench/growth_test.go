package bench_test

import (
	"context"
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
				for i := range n {
					x.acquire(ctx, c, "bench"+strconv.Itoa(i))
				}
			})
		}
		for _, n := range []int{1, 10, 100, 1_000} {
			x.cost(waiting, n, func(ctx context.Context, c *lockcore.Client, wg *sync.WaitGroup) {
				m := x.acquire(ctx, c, "bench")
				for range n {
					wg.Go(func() { _, _ = m.Lock(ctx) }) // until ctx ends
				}
			})
		}
	}
}

func (x *bench) acquire(ctx context.Context, c *lockcore.Client, name string) *lockcore.Mutex {
	m, err := c.Mutex(name, lockcore.LeaseConfig{})
	x.check(err)
	_, err = m.TryLock(ctx)
	x.check(err)
	return m
}

// cost measures the processors for a third of a TTL, in which each lease is renewed once, and
// then counts the commands for another third: counting costs the server time.
func (x *bench) cost(t *table, n int, begin func(ctx context.Context, c *lockcore.Client, wg *sync.WaitGroup)) {
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
