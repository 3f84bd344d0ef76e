package bench_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// changes: a hundred changes of jobs a second, of a Runner that has no other job, so that nothing else is counted, and how long
// a change takes until it acts beside 10,000 jobs.
func changes(x *bench) {
	t := x.table("", "change")
	work := func(context.Context, singleton.Run) error { return nil }
	for range *repetitions {
		x.onRunner(0, func(ctx context.Context, s *server, rdb *redis.Client, r *singleton.Runner) {
			for _, one := range []struct {
				line   string
				change func(name string) error
			}{
				{"raw go-redis", func(name string) error { return rdb.HSet(ctx, "jobs", name, "0 0 1 1 *").Err() }},
				{"noonlock, Add", func(name string) error { return r.Add(name, "0 0 1 1 *", work, singleton.JobConfig{}) }},
				{"noonlock, Update", func(name string) error { return r.Update(name, "0 0 2 1 *", work, singleton.JobConfig{}) }},
				{"noonlock, Remove", func(name string) error { return r.Remove(name) }},
			} {
				server, used, begin, n := s.processor(), x.processor(), time.Now(), 0
				stop := s.count()
				for ; time.Since(begin) < 3*length(); n++ {
					x.check(one.change("new" + strconv.Itoa(n)))
					sleep(ctx, time.Until(begin.Add(time.Duration(n+1)*10*time.Millisecond)))
				}
				sent, inside := stop()
				for column, sum := range map[string]float64{"commands": sent, "commands inside scripts": inside} {
					t.add(one.line, column, sum/float64(n))
				}
				t.add(one.line, "server CPU, µs", 1e6*(s.processor()-server)/float64(n))
				t.add(one.line, "client CPU, µs", 1e6*(x.processor()-used)/float64(n))
			}
		})
		x.onRunner(10_000, func(ctx context.Context, _ *server, _ *redis.Client, r *singleton.Runner) {
			for i := range 50 {
				name := "late" + strconv.Itoa(i)
				at := time.Now()
				x.check(r.Add(name, "0 0 1 1 *", work, singleton.JobConfig{}))
				await(ctx, func() bool { return r.Ready() == nil })
				t.add("noonlock, Add", "until it acts, ms", time.Since(at).Seconds()*1e3)
			}
		})
	}
}

// instants: 100 runs are added for one instant, beside ZADD of as many, which nobody reads. One replica runs them.
func instants(x *bench) {
	const runs = 100
	t := x.table("", "request")
	for range *repetitions {
		x.onRunner(0, func(ctx context.Context, _ *server, rdb *redis.Client, r *singleton.Runner) {
			var done, late atomic.Int64
			at := time.Now().Add(3 * time.Second)
			x.check(r.Add("remind", "0 0 29 2 *", func(context.Context, singleton.Run) error {
				done.Add(1)
				late.Store(int64(time.Since(at)))
				return nil
			}, singleton.JobConfig{AllowOverlap: true}))
			await(ctx, func() bool { return r.Ready() == nil })
			client, err := lockcore.New(rdb, lockcore.Config{})
			x.check(err)
			job, err := singleton.NewJob(client, "remind")
			x.check(err)
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
			await(ctx, func() bool { return done.Load() >= runs })
			t.add("raw go-redis, ZADD", "µs", raw)
			t.add("raw go-redis, ZADD", "× raw", 1)
			t.add("noonlock, TriggerAt", "µs", took)
			t.add("noonlock, TriggerAt", "× raw", took/raw)
			t.add("noonlock, TriggerAt", "until all have run, ms", time.Duration(late.Load()).Seconds()*1e3)
			_ = client.Close(context.Background())
		})
	}
}

// onRunner calls a function with a Runner that runs, and has jobs.
func (x *bench) onRunner(jobs int, f func(ctx context.Context, s *server, rdb *redis.Client, r *singleton.Runner)) {
	s := x.serve(noonlock)
	ctx, cancel := context.WithCancel(x.ctx())
	rdb := newRedis(s.addr, options{})
	r, run := x.runner(s, singleton.Config{})
	work := func(context.Context, singleton.Run) error { return nil }
	for j := range jobs {
		x.check(r.Add("job"+strconv.Itoa(j), "0 0 1 1 *", work, singleton.JobConfig{}))
	}
	var ended sync.WaitGroup
	ended.Go(func() { run(ctx) })
	await(ctx, func() bool { return r.Ready() == nil })
	sleep(ctx, time.Second)
	f(ctx, s, rdb, r)
	cancel()
	ended.Wait()
	_ = rdb.Close()
	s.redis.Kill()
}
