package singleton_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
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

// nothingIsHeldUp runs a job. It asserts that leases are renewed, that ticks are run, that
// another watcher is notified, and that everything ends at once.
func nothingIsHeldUp(t *testing.T, reg prometheus.Registerer, meddle func(runner *singleton.Runner, job *singleton.Job) (undo func())) {
	t.Helper()
	inBubble(t, func(t *testing.T, f *fleet) {
		client := f.ClientWith(f.Direct(), lockcore.Config{Registerer: reg})
		runner, err := singleton.NewRunner(client, singleton.Config{TTL: 2 * time.Second, Registerer: reg})
		testenv.Must(t, err)
		var runs, lost, heard atomic.Int32
		testenv.Must(t, runner.Add("report", "@every 10s", func(ctx context.Context, _ singleton.Run) error {
			runs.Add(1)
			time.Sleep(5 * time.Second)
			if ctx.Err() != nil {
				lost.Add(1)
			}
			return nil
		}, singleton.JobConfig{}))
		job, err := singleton.NewJob(client, "report")
		testenv.Must(t, err)
		go func() {
			for range job.Watch(f.Context()) {
				heard.Add(1)
			}
		}()
		undo := meddle(runner, job)
		run := f.run(runner.Run)
		f.Pass(68 * time.Second)
		if runs.Load() < 6 || lost.Load() > 0 || heard.Load() < 6 {
			t.Errorf("%d runs, %d of them lost their lease; another watcher has heard %d times", runs.Load(), lost.Load(), heard.Load())
		}
		begun := time.Now()
		run.cancel()
		testenv.Must(t, run.result())
		testenv.Must(t, client.Close(context.Background()))
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("the end took %v", took)
		}
		undo()
	})
}

// Nobody receives from a Job.Watch: nothing else waits for that.
//
// Caught mutant: a value is sent to the channel although it has one.
func TestFault63_WatcherThatBlocks(t *testing.T) {
	t.Parallel()
	nothingIsHeldUp(t, nil, func(_ *singleton.Runner, job *singleton.Job) func() {
		changes := job.Watch(context.Background()) // the end of the Client ends it
		return func() {
			for range changes { // until it is closed
			}
		}
	})
}

// A scrape blocks in each collector: runs are counted, and another Runner and a DaemonRunner can
// be created.
//
// Caught mutants: the Vecs of client_golang.
func TestFault63_ScrapeThatHangs(t *testing.T) {
	t.Parallel()
	reg := &stuckRegisterer{Registerer: prometheus.NewRegistry()}
	nothingIsHeldUp(t, reg, func(runner *singleton.Runner, _ *singleton.Job) func() {
		goOn := reg.scrape()
		if err := runner.Add("second", "@every 1h", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}); err != nil {
			t.Error(err)
		}
		return goOn
	})
}
