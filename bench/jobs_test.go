package bench_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A burst is a number of jobs on some replicas, and what of their ticks is measured.
type burst struct {
	line, schedule string
	replicas, jobs int
	interval       time.Duration // of the schedule
	ticks          int
}

// manyJobs: replicas of one job that is due often.
func manyJobs(x *bench) {
	t := x.table("", "jobs")
	for range *repetitions {
		x.burst(t, burst{"1 on 3 replicas, every 100 ms", "@every 100ms", 3, 1, 100 * time.Millisecond, 200})
	}
}

// bursts: jobs that are all due at one instant. They take long, and are measured once.
func bursts(x *bench) {
	t := x.table("", "jobs at one instant")
	for _, jobs := range []int{100, 1000, 5000} {
		x.burst(t, burst{figure(float64(jobs)) + " on 5 replicas", everyMinute, 5, jobs, time.Minute, 1})
	}
}

// The instants of @every depend on the name of the job; those of everyMinute are the same for all jobs.
const everyMinute = "* * * * *"

// burst measures the delay from a tick on the server's clock, here also this machine's, to the work.
func (x *bench) burst(t *table, c burst) {
	s := x.serve(noonlock)
	ctx, cancel := context.WithCancel(x.ctx())
	var mu sync.Mutex
	var delays []float64
	wait := x.replicas(ctx, s, c.replicas, c.jobs, c.schedule, func(_ context.Context, run singleton.Run) error {
		delay := time.Since(run.Tick).Seconds() * 1e3
		mu.Lock()
		defer mu.Unlock()
		delays = append(delays, delay)
		return nil
	})
	sleep(ctx, time.Second)
	// A window begins and ends in the middle between two ticks. At least one is before it: then every script is loaded.
	sleep(ctx, time.Until(time.Now().Truncate(c.interval).Add(c.interval*3/2)))
	mu.Lock()
	delays = nil
	mu.Unlock()
	used, window := x.processor(), time.Duration(c.ticks)*c.interval
	sleep(ctx, window)
	used = x.processor() - used
	mu.Lock()
	measured := delays
	mu.Unlock()
	stop := s.count() // which takes time
	sleep(ctx, c.interval)
	sent, _ := stop()
	cancel()
	wait()
	t.add(c.line, "runs of a tick", float64(len(measured))/float64(c.ticks*c.jobs))
	t.add(c.line, "delay, ms", median(measured))
	t.add(c.line, "delay of p99, ms", quantile(measured, .99))
	t.add(c.line, "commands of a tick", sent/float64(c.jobs))
	t.add(c.line, "CPU of a replica, %", 100*used/window.Seconds()/float64(c.replicas))
}

// replicas begins Runners that have the same jobs, until ctx ends. wait returns when they have stopped.
func (x *bench) replicas(
	ctx context.Context, s *server, replicas, jobs int, schedule string, work func(context.Context, singleton.Run) error,
) (wait func()) {
	var all sync.WaitGroup
	for range replicas {
		r, run := x.runner(s, singleton.Config{})
		for j := range jobs {
			x.check(r.Add("job"+strconv.Itoa(j), schedule, work, singleton.JobConfig{}))
		}
		all.Go(func() { run(ctx) })
	}
	return all.Wait
}

// runner returns a Runner with a client of its own. run runs it until ctx ends, and closes the client.
func (x *bench) runner(s *server, cfg singleton.Config) (r *singleton.Runner, run func(ctx context.Context)) {
	rdb := newRedis(s.addr, options{})
	client, err := lockcore.New(rdb, lockcore.Config{})
	x.check(err)
	r, err = singleton.NewRunner(client, cfg)
	x.check(err)
	return r, func(ctx context.Context) {
		if err := r.Run(ctx); err != nil {
			x.b.Error(err)
		}
		_ = client.Close(context.Background())
		_ = rdb.Close()
	}
}

// atNoon: 3,000 jobs are due at one instant on one replica. A run takes 20 ms.
func atNoon(x *bench) {
	const jobs, takes = 3000, 20 * time.Millisecond
	t := x.table("", "3,000 jobs")
	for range *repetitions {
		for _, c := range []struct {
			line string
			most int
		}{
			{line: "without a limit"},
			{line: "MaxConcurrentRuns 10", most: 10},
		} {
			s := x.serve(noonlock)
			ctx, cancel := context.WithCancel(x.ctx())
			r, run := x.runner(s, singleton.Config{MaxConcurrentRuns: c.most})
			var mu sync.Mutex
			now, most, ran := 0, 0, map[time.Time]int{}
			all := make(chan time.Time, 10)
			for j := range jobs {
				x.check(r.Add("job"+strconv.Itoa(j), everyMinute, func(ctx context.Context, run singleton.Run) error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					sleep(ctx, takes)
					mu.Lock()
					defer mu.Unlock()
					now--
					if ran[run.Tick]++; ran[run.Tick] == jobs {
						all <- run.Tick
					}
					return nil
				}, singleton.JobConfig{}))
			}
			var ended sync.WaitGroup
			ended.Go(func() { run(ctx) })
			<-all // the first tick, for which some jobs may start late
			mu.Lock()
			most = 0
			mu.Unlock()
			tick := <-all
			took := time.Since(tick)
			cancel()
			ended.Wait()
			t.add(c.line, "runs at a time", float64(most))
			t.add(c.line, "until all have run, s", took.Seconds())
			if c.most > 0 {
				t.add(c.line, "× the least for that limit", took.Seconds()/(jobs*takes.Seconds()/float64(c.most)))
			}
		}
	}
}

// idleJobs: replicas of jobs that are due once in four years. It takes long, and is measured once.
func idleJobs(x *bench) {
	const begin, window = 90 * time.Second, 75 * time.Second
	t := x.table("", "idle jobs")
	for _, c := range []struct {
		line           string
		replicas, jobs int
	}{
		{"300 on 3 replicas", 3, 300},
		{"1,000 on 10 replicas", 10, 1000},
	} {
		s := x.serve(noonlock)
		ctx, cancel := context.WithCancel(x.ctx())
		work := func(context.Context, singleton.Run) error { return nil }
		wait := x.replicas(ctx, s, c.replicas, c.jobs, "0 0 29 2 *", work)
		sleep(ctx, begin)
		calls, took := s.scripts()
		used := s.processor()
		sleep(ctx, window)
		more, after := s.scripts()
		used = s.processor() - used
		cancel()
		wait()
		t.add(c.line, "looks a second", (more-calls)/window.Seconds())
		t.add(c.line, "server µs a look", (after-took)/(more-calls))
		t.add(c.line, "server CPU, %", 100*used/window.Seconds())
	}
}

// scripts returns how many calls of scripts the server has answered, and the µs that it needed.
func (s *server) scripts() (calls, took float64) {
	for stat := range strings.SplitSeq(s.field("commandstats", "cmdstat_evalsha"), ",") {
		name, value, _ := strings.Cut(stat, "=")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "calls":
			calls = n
		case "usec":
			took = n
		}
	}
	return calls, took
}
