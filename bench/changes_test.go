package bench_test

import (
	"context"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// changes: what it costs to change the jobs of a Runner that has 10,000 of them, a hundred changes a second. The cost of the
// jobs that are there is measured first, and not counted.
func changes(x *bench) {
	const jobs, perSecond = 10_000, 100
	window := 3 * length() // all of them are over before the 10,000 look again, after 30 s
	t := x.table("", "change")
	for range *repetitions {
		s := x.serve(noonlock)
		ctx, cancel := context.WithCancel(x.ctx())
		rdb := newRedis(s.addr, options{})
		client, err := lockcore.New(rdb, lockcore.Config{})
		x.check(err)
		r, err := singleton.NewRunner(client, singleton.Config{})
		x.check(err)
		work := func(context.Context, singleton.Run) error { return nil }
		add := func(name string) { x.check(r.Add(name, "0 0 1 1 *", work, singleton.JobConfig{})) }
		for j := range jobs {
			add("job" + strconv.Itoa(j))
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		ready := func() bool { return r.Ready() == nil }
		await(ctx, ready)
		for sent := 1e6; sent > 100; { // messages of the subscriptions make the jobs look again
			stop := s.count()
			sleep(ctx, time.Second)
			sent, _ = stop()
		}
		var idle [4]float64
		for _, c := range []struct {
			line   string
			change func(name string)
		}{
			{"", func(string) {}},
			{"raw go-redis", func(name string) { x.check(rdb.HSet(ctx, name, "schedule", "0 0 1 1 *").Err()) }},
			{"noonlock, Add", add},
			{"noonlock, Update", func(name string) { x.check(r.Update(name, "0 0 2 1 *", work, singleton.JobConfig{})) }},
			{"noonlock, Remove", func(name string) { x.check(r.Remove(name)) }},
		} {
			begin, server, used := time.Now(), s.processor(), x.processor()
			stop := s.count()
			n := 0
			for ; time.Since(begin) < window; n++ {
				c.change("new" + strconv.Itoa(n))
				sleep(ctx, time.Until(begin.Add(time.Duration(n+1)*time.Second/perSecond)))
			}
			sent, inside := stop()
			cost := [4]float64{sent, inside, 1e6 * (s.processor() - server), 1e6 * (x.processor() - used)}
			if c.line == "" {
				idle = cost
				continue
			}
			for i, column := range []string{"commands", "commands inside scripts", "server CPU, µs", "client CPU, µs"} {
				t.add(c.line, column, max(0, cost[i]-idle[i])/float64(n))
			}
		}
		for i := range 50 {
			began := time.Now()
			add("late" + strconv.Itoa(i))
			for !ready() {
				time.Sleep(50 * time.Microsecond)
			}
			t.add("noonlock, Add", "until it can run, ms", time.Since(began).Seconds()*1e3)
		}
		cancel()
		x.check(<-ended)
		_ = client.Close(context.Background())
		_ = rdb.Close()
		s.redis.Kill()
	}
}
