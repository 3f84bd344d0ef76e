package peers_test

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
	libraries := []library{noonlock, redisLock, redSync, rueidisLock, rueidis20ms}
	stuck := x.table("Goroutines of 16 that are stuck 2 s after the stalls", "library")
	failed := x.table("Calls that returned an error", "library")
	for range *repetitions {
		for _, stall := range []time.Duration{15 * time.Millisecond, 60 * time.Millisecond, 600 * time.Millisecond} {
			for _, l := range libraries {
				s := x.serve(l)
				ctx, cancel := context.WithCancel(x.ctx())
				c, err := l.open(s.addr, options{})
				x.check(err)
				var wg sync.WaitGroup
				var cycles [goroutines]atomic.Int64
				var failures atomic.Int64
				for i := range goroutines {
					h := x.hold(ctx, c, "bench"+strconv.Itoa(i))
					wg.Go(func() {
						for ctx.Err() == nil {
							if err := h(ctx, func() {}); err != nil && ctx.Err() == nil {
								failures.Add(1)
							}
							cycles[i].Add(1)
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
				var before [goroutines]int64
				for i := range before {
					before[i] = cycles[i].Load()
				}
				sleep(ctx, patience)
				n := 0
				for i := range before {
					if cycles[i].Load() == before[i] {
						n++
					}
				}
				cancel()
				c.close()
				wg.Wait()
				s.redis.Kill()
				column := stall.String()
				stuck.add(l.name, column, float64(n))
				failed.add(l.name, column, float64(failures.Load()))
			}
		}
	}
}
