package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, everyCall)
}

// begun waits until work has begun under run, and returns a function that ends run.
func begun(e *testenv.Env, what string, run func(context.Context) error, began <-chan struct{}) (stop func(context.Context)) {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx)
	}()
	e.Cleanup(cancel)
	select {
	case <-began:
	case <-time.After(5 * time.Minute):
		e.Fatalf("%s has not begun", what)
	}
	return func(ends context.Context) {
		<-ends.Done()
		cancel()
		<-done
	}
}

func everyCall(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
	runner := func(name string) (*singleton.Runner, <-chan struct{}) {
		began := make(chan struct{}, 100)
		r, err := singleton.NewRunner(c, singleton.Config{TTL: ttl, Drain: -1, ShutdownTimeout: testenv.BoundShutdown})
		testenv.Must(e, err)
		testenv.Must(e, r.Add(name, "* * * * *", func(ctx context.Context, _ singleton.Run) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}, singleton.JobConfig{}))
		return r, began
	}
	once := func(name string) (do func(context.Context) error, _ <-chan struct{}) {
		began := make(chan struct{}, 100)
		o, err := singleton.NewRunner(c, singleton.Config{TTL: ttl, Drain: -1, ShutdownTimeout: testenv.BoundShutdown})
		testenv.Must(e, err)
		return func(ctx context.Context) error {
			return o.Once(ctx, name, func(ctx context.Context) error {
				began <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}, began
	}
	working, began := runner("draw")
	add("Runner.Run during a run", begun(e, "the run", working.Run, began))
	idle, _ := runner("idle")
	add("Runner.Run without a run", func(ctx context.Context) { _ = idle.Run(ctx) })

	do, began := once("migration")
	add("Runner.Once during its work", begun(e, "the work", do, began))
	again, _ := once("migration")
	add("Runner.Once while it waits", func(ctx context.Context) { _ = again(ctx) })
	first, _ := once("vacant")
	add("Runner.Once of vacant work", func(ctx context.Context) { _ = first(ctx) })

	job, err := singleton.NewJob(c, "draw")
	testenv.Must(e, err)
	add("Job.Status", func(ctx context.Context) { _, _ = job.Status(ctx) })
	add("Job.Runs", func(ctx context.Context) { _, _ = job.Runs(ctx, 10) })
	add("Job.Pause", func(ctx context.Context) { _ = job.Pause(ctx) })
	add("Job.Resume", func(ctx context.Context) { _ = job.Resume(ctx) })
	add("Job.Rerun", func(ctx context.Context) { _ = job.Rerun(ctx, singleton.RunOf(60_000)) })
	add("Job.Actions", func(ctx context.Context) { _, _ = job.Actions(ctx, 10) })
	add("Job.CancelAt", func(ctx context.Context) { _ = job.CancelAt(ctx, "x") })
	add("Job.Result", func(ctx context.Context) { _, _ = job.Result(ctx, "x") })
	add("Job.TriggerAt", func(ctx context.Context) { _, _ = job.TriggerAt(ctx, "x", time.Now(), "") })
	add("Job.Cancel", func(ctx context.Context) { _, _ = job.Cancel(ctx, singleton.RunID{}) })
	add("Job.Forget", func(ctx context.Context) { _ = job.Forget(ctx) })
	add("Job.Trigger", func(ctx context.Context) { _, _ = job.Trigger(ctx) })
	add("Job.Trigger with 1 s", func(ctx context.Context) { _, _ = job.Trigger(ctx) })
	add("Jobs", func(ctx context.Context) { _, _ = singleton.Jobs(ctx, c, nil) })
	add("Job.Watch", func(ctx context.Context) { job.Watch(ctx) })
	add("Runner.Add", func(context.Context) { _ = idle.Add("other", "* * * * *", nil, singleton.JobConfig{}) })
	add("Runner.Update", func(context.Context) { _ = idle.Update("other", "* * * * *", nil, singleton.JobConfig{}) })
	add("Runner.Remove", func(context.Context) { _ = idle.Remove("other") })
	add("Runner.Check", func(context.Context) { _ = working.Check(0) })
	add("Runner.Ready", func(context.Context) { _ = working.Ready() })
}
