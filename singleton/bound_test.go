package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, everyCall,
		(*singleton.Runner)(nil), (*singleton.Job)(nil), (*singleton.Once)(nil), (*singleton.Daemon)(nil))
}

const (
	boundLease    = 3 * time.Second
	boundShutdown = 2 * time.Second
)

// begun waits until work has begun under run, and returns a function that ends run.
func begun(e *testenv.Env, what string, run func(context.Context) error, began <-chan struct{}) (stop func(context.Context)) {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx)
	}()
	stop = func(context.Context) {
		cancel()
		<-done
	}
	e.Cleanup(func() { stop(ctx) })
	select {
	case <-began:
	case <-time.After(5 * time.Minute):
		e.Fatalf("%s has not begun", what)
	}
	return stop
}

func callsOfADaemon(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	daemon := func(name string) (*singleton.Daemon, <-chan struct{}) {
		began := make(chan struct{}, 100)
		d, err := singleton.NewDaemon(c, name, func(ctx context.Context, _ uint64) error {
			began <- struct{}{}
			<-ctx.Done()
			return nil
		}, singleton.DaemonConfig{TTL: boundLease, ShutdownTimeout: boundShutdown})
		testenv.Must(e, err)
		return d, began
	}
	live, began := daemon("feed")
	add("Daemon.Run during its work", boundShutdown, begun(e, "the daemon", live.Run, began))
	queued, _ := daemon("feed")
	add("Daemon.Run in the queue with 1 s", time.Second+boundShutdown, e.Within(func(ctx context.Context) { _ = queued.Run(ctx) }))
	for name, local := range map[string]func(){
		"Daemon.Check": func() { _ = live.Check(0) },
		"Daemon.Ready": func() { _ = live.Ready() },
		"Daemon.Name":  func() { _ = live.Name() },
	} {
		add(name, 0, func(context.Context) { local() })
	}
}

func everyCall(e *testenv.Env, c *lockcore.Client, add testenv.AddCall) {
	const ofJob = 7 * time.Second // two thirds of the default TTL
	callsOfADaemon(e, c, add)
	runner := func(name string) (*singleton.Runner, <-chan struct{}) {
		began := make(chan struct{}, 100)
		r, err := singleton.NewRunner(c, singleton.Config{TTL: boundLease, Drain: -1, ShutdownTimeout: boundShutdown})
		testenv.Must(e, err)
		testenv.Must(e, r.Add(name, "* * * * *", func(ctx context.Context, _ singleton.Run) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}, singleton.JobConfig{}))
		return r, began
	}
	once := func(name string) (*singleton.Once, func(context.Context) error, <-chan struct{}) {
		began := make(chan struct{}, 100)
		o, err := singleton.NewOnce(c, name, singleton.OnceConfig{TTL: boundLease, ShutdownTimeout: boundShutdown})
		testenv.Must(e, err)
		return o, func(ctx context.Context) error {
			return o.Do(ctx, func(ctx context.Context, _ uint64) error {
				began <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}, began
	}
	working, began := runner("draw")
	add("Runner.Run during a run", boundShutdown, begun(e, "the run", working.Run, began))
	idle, _ := runner("idle")
	add("Runner.Run with 1 s", time.Second+boundShutdown, e.Within(func(ctx context.Context) { _ = idle.Run(ctx) }))

	migration, do, began := once("migration")
	add("Once.Do during its work", boundShutdown, begun(e, "the work", do, began))
	_, again, _ := once("migration")
	add("Once.Do while it waits, with 1 s", time.Second+boundShutdown, e.Within(func(ctx context.Context) { _ = again(ctx) }))
	_, first, _ := once("vacant")
	add("Once.Do with 1 s", time.Second+boundShutdown, e.Within(func(ctx context.Context) { _ = first(ctx) }))

	job, err := singleton.NewJob(c, "draw")
	testenv.Must(e, err)
	add("Job.Status", ofJob, func(ctx context.Context) { _, _ = job.Status(ctx) })
	add("Job.Runs", ofJob, func(ctx context.Context) { _, _ = job.Runs(ctx, 10) })
	add("Job.Pause", ofJob, func(ctx context.Context) { _ = job.Pause(ctx) })
	add("Job.Resume", ofJob, func(ctx context.Context) { _ = job.Resume(ctx) })
	add("Job.Rerun", ofJob, func(ctx context.Context) { _ = job.Rerun(ctx, singleton.RunOf(60_000)) })
	add("Job.Verify", 3*ofJob, func(ctx context.Context) { _, _ = job.Verify(ctx, singleton.VerifyConfig{}) })
	add("Job.Acts", ofJob, func(ctx context.Context) { _, _ = job.Acts(ctx, 10) })
	add("Job.Cancel", ofJob, func(ctx context.Context) { _, _ = job.Cancel(ctx, singleton.RunID{}) })
	add("Job.By", 0, func(context.Context) { _, _ = job.By(lockcore.Operator{Who: "ann@host"}) })
	add("Job.Trigger", ofJob, func(ctx context.Context) { _, _ = job.Trigger(ctx) })
	add("Job.Trigger with 1 s", time.Second, e.Within(func(ctx context.Context) { _, _ = job.Trigger(ctx) }))
	add("Jobs", ofJob, func(ctx context.Context) { _, _ = singleton.Jobs(ctx, c, lockcore.ListConfig{}) })
	add("Daemons", ofJob, func(ctx context.Context) { _, _ = singleton.Daemons(ctx, c, lockcore.ListConfig{}) })
	add("Job.Watch", 0, func(context.Context) { job.Watch(func() {})() })
	for name, local := range map[string]func(){
		"Runner.Add":         func() { _ = idle.Add("other", "* * * * *", nil, singleton.JobConfig{}) },
		"Runner.AddSchedule": func() { _ = idle.AddSchedule("other", schedule.Schedule(nil), nil, singleton.JobConfig{}) },
		"Runner.Check":       func() { _ = working.Check(0) },
		"Runner.Ready":       func() { _ = working.Ready() },
		"Once.Name":          func() { _ = migration.Name() },
	} {
		add(name, 0, func(context.Context) { local() })
	}
}
