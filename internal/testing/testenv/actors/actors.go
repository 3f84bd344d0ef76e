// Package actors runs candidates and jobs in tests.
package actors

import (
	"context"
	"slices"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Elector runs a candidate until the end of the test, or until stop. It waits until the candidate leads or queues.
func Elector(e *testenv.Env, client *lockcore.Client, name string, cfg election.Config) (le *election.LeaderElector, stop func()) {
	e.Helper()
	le = testenv.Call(election.NewLeaderElector(client, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {},
	}, cfg)).Must(e)
	board := testenv.Call(election.NewElection(client, name)).Must(e)
	stop = e.Background(le.Run)
	e.Until(client.Identity()+" takes part", func() bool {
		waiting := testenv.Call(board.Candidates(e.Context())).Must(e)
		return le.IsLeader() || slices.ContainsFunc(waiting, func(c election.Candidate) bool { return c.Identity == client.Identity() })
	})
	return le, stop
}

// Runner runs a job until the end of the test, or until stop. It waits until the job has a ledger.
func Runner(
	e *testenv.Env, client *lockcore.Client, name, when string, cfg singleton.JobConfig, work func(context.Context, singleton.Run) error,
) (j *singleton.Job, stop func()) {
	e.Helper()
	r := testenv.Call(singleton.NewRunner(client, singleton.Config{Drain: -1})).Must(e)
	testenv.Must(e, r.Add(name, when, work, cfg))
	stop = e.Background(r.Run)
	return Job(e, client, name), stop
}

// Job returns a job that has a ledger, or will have one soon.
func Job(e *testenv.Env, client *lockcore.Client, name string) *singleton.Job {
	e.Helper()
	j := testenv.Call(singleton.NewJob(client, name)).Must(e)
	e.Until("the job has a ledger", func() bool {
		_, err := j.Status(e.Context())
		return err == nil
	})
	return j
}

// Nothing is the work of a job.
func Nothing(context.Context, singleton.Run) error { return nil }

// Wait queues for a mutex until the end of the test.
func Wait(e *testenv.Env, client *lockcore.Client, name string) {
	e.Helper()
	m := testenv.Call(client.Mutex(name, testenv.TTL(time.Minute))).Must(e)
	waiters := func() int { return len(testenv.Call(client.Inspect(e.Context(), name)).Must(e).Waiters) }
	before := waiters()
	e.Background(func(ctx context.Context) error { _, err := m.Lock(ctx); return err })
	e.Until(client.Identity()+" waits", func() bool { return waiters() > before })
}
