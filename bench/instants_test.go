package bench_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// instants: 100 runs are added for one instant, beside ZADD of as many, which nobody reads. One replica runs them.
func instants(x *bench) {
	const runs = 100
	t := x.table("", "request")
	for range *repetitions {
		s := x.serve(noonlock)
		rdb := newRedis(s.addr, options{})
		client, err := lockcore.New(rdb, lockcore.Config{})
		x.check(err)
		r, err := singleton.NewRunner(client, singleton.Config{})
		x.check(err)
		var done, late atomic.Int64
		var at time.Time
		x.check(r.Add("remind", "0 0 29 2 *", func(context.Context, singleton.Run) error {
			done.Add(1)
			late.Store(int64(time.Since(at)))
			return nil
		}, singleton.JobConfig{AllowOverlap: true}))
		ctx, cancel := context.WithCancel(x.ctx())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		for r.Ready() != nil {
			sleep(ctx, 10*time.Millisecond)
		}
		job, err := singleton.NewJob(client, "remind")
		x.check(err)
		at = time.Now().Add(3 * time.Second)
		each := func(do func(i int) error) float64 {
			begin := time.Now()
			for i := range runs {
				x.check(do(i))
			}
			return time.Since(begin).Seconds() * 1e6 / runs
		}
		raw := each(func(i int) error {
			return rdb.ZAdd(ctx, "due", redis.Z{Score: float64(at.UnixMilli()), Member: strconv.Itoa(i)}).Err()
		})
		took := each(func(i int) error {
			_, err := job.TriggerAt(ctx, strconv.Itoa(i), at, "ann@example.com")
			return err
		})
		for done.Load() < runs {
			sleep(ctx, 10*time.Millisecond)
		}
		t.add("raw go-redis, ZADD", "µs", raw)
		t.add("raw go-redis, ZADD", "× raw", 1)
		t.add("noonlock, TriggerAt", "µs", took)
		t.add("noonlock, TriggerAt", "× raw", took/raw)
		t.add("noonlock, TriggerAt", "until all have run, ms", time.Duration(late.Load()).Seconds()*1e3)
		cancel()
		x.check(<-ended)
		_ = client.Close(context.Background())
		_ = rdb.Close()
	}
}
