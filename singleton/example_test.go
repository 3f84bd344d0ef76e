package singleton_test

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Three replicas run one job. One of them runs each tick.
func ExampleRunner() {
	server, err := lockcoretest.StartRedis() // in production: the Redis you run
	must(err)
	defer server.Close()

	ctx, cancel := context.WithCancel(context.Background())
	ticks := make(chan time.Time)
	ended := make(chan error)
	const replicas = 3
	for i := range replicas {
		go func() {
			client, err := lockcore.New(server.Client(), lockcore.Config{Identity: fmt.Sprintf("replica-%d", i)})
			must(err)
			runner, err := singleton.NewRunner(client, singleton.Config{})
			must(err)
			must(runner.Add("report", "@every 200ms", func(ctx context.Context, run singleton.Run) error {
				select {
				case ticks <- run.Tick: // do the work here, with run.Token at the resource
				case <-ctx.Done():
				}
				return ctx.Err()
			}, singleton.JobConfig{}))
			err = runner.Run(ctx)
			_ = client.Close(context.Background())
			ended <- err
		}()
	}

	before := <-ticks
	for range 3 {
		tick := <-ticks
		fmt.Println(tick.After(before), tick.Sub(before)%(200*time.Millisecond))
		before = tick
	}
	cancel()
	for range replicas {
		if err := <-ended; err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// true 0s
	// true 0s
	// true 0s
}

// connect returns a Runner, its Client, and a function that ends them. In production, use your own Redis.
func connect() (client *lockcore.Client, runner *singleton.Runner, end func()) {
	server, err := lockcoretest.StartRedis()
	must(err)
	client, err = lockcore.New(server.Client(), lockcore.Config{Identity: "replica-1"})
	must(err)
	runner, err = singleton.NewRunner(client, singleton.Config{})
	must(err)
	return client, runner, func() {
		_ = client.Close(context.Background())
		server.Close()
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// An operator's program inspects a job, pauses it, and triggers it once.
func ExampleJob() {
	client, runner, end := connect()
	defer end()
	ran := make(chan singleton.Run)
	must(runner.Add("report", "@every 200ms", func(_ context.Context, run singleton.Run) error {
		ran <- run
		return nil
	}, singleton.JobConfig{}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	job, err := singleton.NewJob(client, "report")
	must(err)
	changed := job.Watch(ctx)
	<-ran
	err = job.Pause(ctx)
	fmt.Println("pause:", err)
	status, err := job.Status(ctx)
	fmt.Println("paused:", status.Paused, err)
	name, err := job.Trigger(ctx)
	fmt.Println("trigger:", err)
	for run := range ran {
		if run.Triggered { // not a tick that was due before the pause
			break
		}
	}
	for range changed { // a message arrives when it is recorded
		runs, err := job.Runs(ctx, 1)
		must(err)
		if runs[0].RunID == name {
			fmt.Println("outcome:", runs[0].Outcome)
			break
		}
	}
	cancel()
	fmt.Println("ended:", <-ended)
	// Output:
	// pause: <nil>
	// paused: true <nil>
	// trigger: <nil>
	// outcome: succeeded
	// ended: <nil>
}

// An operator cancels a run that hangs. After the cause is removed, the operator runs it again.
func ExampleJob_Rerun() {
	client, runner, end := connect()
	defer end()
	hangs, ended := make(chan bool), make(chan error)
	must(runner.Add("report", "@never", func(ctx context.Context, _ singleton.Run) error {
		if <-hangs {
			<-ctx.Done()
		}
		return context.Cause(ctx)
	}, singleton.JobConfig{}))
	running, cancel := context.WithCancel(context.Background())
	go func() { ended <- runner.Run(running) }()

	job, err := singleton.NewJob(client, "report")
	must(err)
	ctx := lockcore.WithOperator(running, lockcore.Operator{Who: "ann@host", Reason: "the disk is full"})
	changed := job.Watch(ctx)
	outcome := func(want singleton.Outcome) {
		for range changed {
			if runs, err := job.Runs(ctx, 1); err == nil && len(runs) > 0 && runs[0].Outcome == want {
				fmt.Println(want)
				return
			}
		}
	}
	for names := []string{}; len(names) == 0; { // until the Runner has made the ledger
		names, err = singleton.Jobs(ctx, client, nil)
		must(err)
	}
	id, err := job.Trigger(ctx)
	must(err)
	hangs <- true
	canceled, err := job.Cancel(ctx, id)
	fmt.Println("canceled:", len(canceled), err)
	outcome(singleton.OutcomeFailed)

	id, err = singleton.ParseRunID(id.Name()) // as an operator names it, or a row of a database: see Key
	fmt.Println("the same run:", singleton.RunOf(id.Key()) == id, err)
	fmt.Println("pause:", job.Pause(ctx)) // of ticks
	fmt.Println("rerun:", job.Rerun(ctx, id))
	hangs <- false
	outcome(singleton.OutcomeSucceeded)
	fmt.Println("resume:", job.Resume(ctx))
	actions, err := job.Actions(ctx, 5)
	for _, action := range actions {
		fmt.Println(action.By, action.Verb)
	}
	cancel()
	fmt.Println(err, <-ended)
	// Output:
	// canceled: 1 <nil>
	// failed
	// the same run: true <nil>
	// pause: <nil>
	// rerun: <nil>
	// succeeded
	// resume: <nil>
	// ann@host resume
	// ann@host rerun
	// ann@host pause
	// ann@host cancel
	// ann@host trigger
	// <nil> <nil>
}

// A job whose effect must happen at most once, at noon in the time zone of its users.
func ExampleRunner_Add() {
	_, runner, end := connect()
	defer end()
	location, err := time.LoadLocation("Europe/Berlin")
	must(err)
	work := func(context.Context, singleton.Run) error { return nil }
	fmt.Println(runner.Add("mail", "0 12 * * MON-FRI", work, singleton.JobConfig{
		TimeZone: location, MaxAttempts: 1, StartingDeadline: time.Hour, Timeout: 10 * time.Minute,
	}))
	fmt.Println(runner.Add("mail", "0 12 30 2 *", work, singleton.JobConfig{}))
	// Output:
	// <nil>
	// singleton: job "mail": schedule: spec is "0 12 30 2 *"; it must be an expression with a date that exists; no month that it allows has a day that it allows
}

// A program changes its jobs while it runs them, for example after its configuration has changed.
func ExampleRunner_Update() {
	client, runner, end := connect()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	reports := make(chan string)
	report := func(format string) func(context.Context, singleton.Run) error {
		return func(ctx context.Context, _ singleton.Run) error {
			select {
			case reports <- format:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
	}
	fmt.Println(runner.Add("report", "@every 100ms", report("text"), singleton.JobConfig{}))
	fmt.Println(<-reports)
	fmt.Println(runner.Update("report", "@every 200ms", report("JSON"), singleton.JobConfig{}))
	last := <-reports
	for last != "JSON" { // a run that has begun ends as it began
		last = <-reports
	}
	fmt.Println(runner.Remove("report"))
	cancel()
	fmt.Println(<-ended)

	job, err := singleton.NewJob(client, "report")
	if err == nil {
		err = job.Forget(context.Background()) // no replica has it any more
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// text
	// <nil>
	// <nil>
	// <nil>
	// <nil>
}
