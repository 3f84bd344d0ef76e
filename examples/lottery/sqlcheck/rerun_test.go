package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// A tick that ended without a recorded success is run again under its own name, with a greater
// token. Its effect happens once, whether or not it had happened before.
func TestReruns(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		n := d.node(t, sqlonce.Config{}, nil)
		server := lockcoretest.NewRedis(t)
		client, err := lockcore.New(server.Client(), lockcore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		for outcome, happened := range map[string]bool{singleton.OutcomeUnknown: true, singleton.OutcomeFailed: false} {
			runner, err := singleton.NewRunner(client, singleton.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var runs []singleton.Run
			var applied []bool
			err = runner.Add(outcome, "@every 8760h", func(ctx context.Context, r singleton.Run) error {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, r)
				if len(runs) == 1 && !happened {
					return errors.New("no luck")
				}
				did, err := n.once.Do(ctx, r.Marker(), func(ctx context.Context, tx *sql.Tx) error { return n.write(ctx, tx, r.Marker()) })
				applied = append(applied, did)
				if len(runs) == 1 {
					return errors.Join(err, singleton.ErrUnknownOutcome)
				}
				return err
			}, singleton.JobConfig{MaxAttempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- runner.Run(ctx) }()
			job, err := singleton.NewJob(client, outcome)
			if err != nil {
				t.Fatal(err)
			}
			if got := triggered(t, job); got != outcome {
				t.Errorf("the first run ended as %s, want %s", got, outcome)
			}
			if err := job.Rerun(t.Context(), runs[0].ID()); err != nil {
				t.Fatal(err)
			}
			give := time.Now().Add(time.Minute)
			var history []singleton.Entry
			for history, err = job.Runs(t.Context(), 2); len(history) < 2; history, err = job.Runs(t.Context(), 2) {
				if time.Now().After(give) {
					t.Fatalf("the rerun is not recorded: %+v, %v", history, err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			stop()
			if err := <-ran; err != nil {
				t.Error(err)
			}
			mu.Lock()
			if len(runs) != 2 || !runs[1].Tick.Equal(runs[0].Tick) || runs[1].Token <= runs[0].Token || runs[1].Key() != runs[0].Key() {
				t.Fatalf("%s: the runs are %+v", outcome, runs)
			}
			if history[0].Outcome != singleton.OutcomeSucceeded || applied[len(applied)-1] == happened {
				t.Errorf("%s: the rerun is %+v; effects were applied: %v", outcome, history[0], applied)
			}
			n.expect(t, runs[0].Marker(), 1, 1)
			mu.Unlock()
		}
	})
}
