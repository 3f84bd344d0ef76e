package singleton_test

import (
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// A reminder is sent once at its instant, by one of the replicas.
func ExampleJob_TriggerAt() {
	client, runner, end := connect()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	must(runner.Add("remind", "0 0 29 2 *", func(_ context.Context, run singleton.Run) error {
		if run.ID != "" { // not a tick of the schedule
			fmt.Println("remind", run.Payload, "of", run.ID)
			cancel()
		}
		return nil
	}, singleton.JobConfig{}))
	done := make(chan error)
	go func() { done <- runner.Run(ctx) }()
	for runner.Ready() != nil {
		time.Sleep(time.Millisecond) // the first replica creates the job
	}
	job, err := singleton.NewJob(client, "remind")
	must(err)
	at := time.Now().Add(time.Hour)
	for range 2 { // the second one has no effect: the id is known
		if _, err := job.TriggerAt(context.Background(), "order-7", time.Now().Truncate(time.Hour), "ann@example.com"); err != nil {
			fmt.Println(err)
		}
	}
	_, _ = job.TriggerAt(context.Background(), "order-8", at, "bob@example.com")
	fmt.Println(<-done, job.CancelAt(context.Background(), "order-8"))
	result, err := job.Result(context.Background(), "order-7")
	fmt.Println(result.Outcome, err)
	// Output:
	// remind ann@example.com of order-7
	// <nil> <nil>
	// succeeded <nil>
}
