package bench_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// stalls: 16 goroutines lock and unlock names that nobody else uses, and the server stops for a
// while, three times. A call of lock or unlock that has not returned long afterwards waits for
// nobody.
func stalls(x *bench) {
	const goroutines, times, pause, patience = 16, 3, 100 * time.Millisecond, 2 * time.Second
	stuck := x.table("Goroutines of 16 that are stuck 2 s after the stalls", "library")
	failed := x.table("Calls that returned an error", "library")
	measure := func(l library, stall time.Duration) {
		s := x.serve(l)
		ctx, cancel := context.WithCancel(x.ctx())
		c, err := l.open(s.addr, options{})
		x.check(err)
		var wg sync.WaitGroup
		var moved [goroutines]atomic.Bool
		var failures atomic.Int64
		for i := range goroutines {
			h := c.lock(ctx, "bench"+strconv.Itoa(i))
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := h(ctx, func() {}); err != nil && ctx.Err() == nil {
						failures.Add(1)
					}
					moved[i].Store(true)
				}
			})
		}
		for range times {
			sleep(ctx, pause)
			s.redis.Pause()
			sleep(ctx, stall)
			s.redis.Resume()
		}
		sleep(ctx, pause)
		for i := range moved {
			moved[i].Store(false)
		}
		sleep(ctx, patience)
		n := 0.0
		for i := range moved {
			if !moved[i].Load() {
				n++
			}
		}
		cancel()
		c.close()
		wg.Wait()
		s.redis.Kill()
		stuck.add(l.name, stall.String(), n)
		failed.add(l.name, stall.String(), float64(failures.Load()))
	}
	for range *repetitions {
		for _, stall := range []time.Duration{15 * time.Millisecond, 60 * time.Millisecond, 600 * time.Millisecond} {
			for _, l := range []library{noonlock, redisLock, redSync, rueidisLock, rueidis20ms} {
				measure(l, stall)
			}
		}
	}
}
