package browser_test

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// elector runs a candidate, and waits until it leads or queues.
func elector(e *testenv.Env, client *lockcore.Client, name string, cfg election.Config) *election.LeaderElector {
	e.Helper()
	le, err := election.NewLeaderElector(client, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {},
	}, cfg)
	testenv.Must(e, err)
	board := testenv.Call(election.NewElection(client, name)).Must(e)
	e.Background(le.Run)
	e.Until(client.Identity()+" takes part", func() bool {
		waiting := testenv.Call(board.Candidates(e.Context())).Must(e)
		for _, c := range waiting {
			if c.Identity == client.Identity() {
				return true
			}
		}
		return le.IsLeader()
	})
	return le
}

// runner runs a job, and waits until it has a ledger.
func runner(e *testenv.Env, client *lockcore.Client, name string, when string, cfg singleton.JobConfig, work func(context.Context, singleton.Run) error) *singleton.Job {
	e.Helper()
	r := testenv.Call(singleton.NewRunner(client, singleton.Config{Drain: -1})).Must(e)
	testenv.Must(e, r.Add(name, when, work, cfg))
	e.Background(r.Run)
	return job(e, client, name)
}

// job returns a job that has a ledger, or will have one soon.
func job(e *testenv.Env, client *lockcore.Client, name string) *singleton.Job {
	e.Helper()
	j := testenv.Call(singleton.NewJob(client, name)).Must(e)
	e.Until("the job has a ledger", func() bool {
		_, err := j.Status(e.Context())
		return err == nil
	})
	return j
}

// wait waits for a mutex until the end of the test.
func wait(e *testenv.Env, client *lockcore.Client, name string) {
	e.Helper()
	m := testenv.Call(client.Mutex(name, testenv.TTL(time.Minute))).Must(e)
	before := len(inspect(e, client, name).Waiters)
	e.Background(func(ctx context.Context) error { _, err := m.Lock(ctx); return err })
	e.Until(client.Identity()+" waits", func() bool { return len(inspect(e, client, name).Waiters) > before })
}

func inspect(e *testenv.Env, client *lockcore.Client, name string) lockcore.Inspection {
	e.Helper()
	return testenv.Call(client.Inspect(e.Context(), name)).Must(e)
}

// A script is the work of a job in a test. Each run does what the test has said for it.
type script struct {
	results chan error
	by      lockcore.Operator // who triggers runs
}

var (
	errHang  = errors.New("the run continues until its context ends")
	errWorse = errors.New("the address is unknown")
)

func newScript() *script { return &script{results: make(chan error, 100)} }

func (s *script) work(ctx context.Context, _ singleton.Run) error {
	err := <-s.results
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// trigger triggers a run with a result, and waits until it has ended, or runs if the result is
// errHang.
func (s *script) trigger(e *testenv.Env, j *singleton.Job, result error) {
	e.Helper()
	before := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
	s.results <- result
	_, err := j.Trigger(lockcore.WithOperator(e.Context(), s.by))
	testenv.Must(e, err)
	e.Until("the run has ended", func() bool {
		if errors.Is(result, errHang) {
			st := testenv.Call(j.Status(e.Context())).Must(e)
			return len(st.Open) == 1 && st.Open[0].Running
		}
		runs := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
		return len(runs) > len(before)
	})
}
