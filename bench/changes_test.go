package bench_test

import (
	"context"
	"strconv"
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

// onRunner calls a function with a Runner that runs, and has jobs.
func (x *bench) onRunner(jobs int, f func(ctx context.Context, s *server, rdb *redis.Client, r *singleton.Runner)) {
	s := x.serve(noonlock)
	ctx, cancel := context.WithCancel(x.ctx())
	rdb := newRedis(s.addr, options{})
	c, err := lockcore.New(rdb, lockcore.Config{})
	x.check(err)
	r, err := singleton.NewRunner(c, singleton.Config{})
	x.check(err)
	work := func(context.Context, singleton.Run) error { return nil }
	for j := range jobs {
		x.check(r.Add("job"+strconv.Itoa(j), "0 0 1 1 *", work, singleton.JobConfig{}))
	}
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	await(ctx, func() bool { return r.Ready() == nil })
	sleep(ctx, time.Second)
	f(ctx, s, rdb, r)
	cancel()
	x.check(<-ended)
	_ = c.Close(context.Background())
	_ = rdb.Close()
	s.redis.Kill()
}
