package singleton_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A stuckRegisterer scrapes each collector. The scrape takes one metric, and then none
// until the end of the test.
type stuckRegisterer struct {
	prometheus.Registerer
	collectors []prometheus.Collector
}

func (r *stuckRegisterer) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registerer.Register(c)
}

// scrape starts the scrapes. The function that it returns lets them continue.
func (r *stuckRegisterer) scrape() (goOn func()) {
	var channels []chan prometheus.Metric
	for _, c := range r.collectors {
		ch := make(chan prometheus.Metric)
		channels = append(channels, ch)
		go func() {
			defer close(ch)
			c.Collect(ch)
		}()
	}
	synctest.Wait()
	return func() {
		for _, ch := range channels {
			for range ch {
			}
		}
	}
}

// nothingIsHeldUp runs a job. It asserts that a lease is renewed, that a waiter is granted
// a lock at once, that ticks are run, and that everything ends in time.
func nothingIsHeldUp(t *testing.T, cfg singleton.Config, meddle func(runner *singleton.Runner, job *singleton.Job) (undo func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		rdb := redis.NewClient(r.Options())
		defer rdb.Close()
		client, err := lockcore.New(rdb, lockcore.Config{Clock: r.Clock(), Registerer: cfg.Registerer})
		if err != nil {
			t.Fatal(err)
		}
		runner, err := singleton.NewRunner(client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int32
		run := func(context.Context, singleton.Run) error {
			runs.Add(1)
			return nil
		}
		if err := runner.Add("report", "@every 10s", run, singleton.JobConfig{}); err != nil {
			t.Fatal(err)
		}
		job, err := singleton.NewJob(client, "report")
		if err != nil {
			t.Fatal(err)
		}
		var heard atomic.Int32
		defer job.Watch(func() { heard.Add(1) })()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		undo := meddle(runner, job)
		go func() { ended <- runner.Run(ctx) }()
		m, err := client.Mutex("orders", lockcore.LeaseConfig{TTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(65 * time.Second)
		if lease.Context().Err() != nil {
			t.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		if runs.Load() < 6 || heard.Load() == 0 {
			t.Errorf("%d runs, another watcher was called %d times", runs.Load(), heard.Load())
		}
		granted := make(chan *lockcore.Lease, 1)
		go func() {
			next, err := m.Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			granted <- next
		}()
		synctest.Wait()
		begun := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
		<-granted
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("the hand-over and the end took %v", took)
		}
		undo()
	})
}

// A function of Job.Watch blocks, or ends its goroutine: nothing else waits for it.
//
// Caught mutant: nudge is called by the goroutine that receives messages.
func TestFault63_WatcherThatBlocks(t *testing.T) {
	t.Parallel()
	nothingIsHeldUp(t, singleton.Config{}, func(_ *singleton.Runner, job *singleton.Job) func() {
		free := make(chan struct{})
		stop := job.Watch(func() { <-free })
		var calls atomic.Int32
		stopToo := job.Watch(func() {
			calls.Add(1)
			runtime.Goexit()
		})
		return func() {
			stop() // while a call is under way
			close(free)
			stopToo()
			if calls.Load() < 6 {
				t.Errorf("one that ends its goroutine was called %d times", calls.Load())
			}
		}
	})
}

// A scrape blocks in each collector: runs are counted, and another Runner and a Daemon can
// be created.
//
// Caught mutants: the Vecs of client_golang.
func TestFault63_ScrapeThatHangs(t *testing.T) {
	t.Parallel()
	reg := &stuckRegisterer{Registerer: prometheus.NewRegistry()}
	nothingIsHeldUp(t, singleton.Config{Registerer: reg}, func(runner *singleton.Runner, _ *singleton.Job) func() {
		goOn := reg.scrape()
		if err := runner.Add("second", "@every 1h", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}); err != nil {
			t.Error(err)
		}
		return goOn
	})
}
