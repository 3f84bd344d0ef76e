package sqlcheck

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// runUntil runs a job with a Runner until ended is closed and the runs in progress are recorded,
// and returns the history of the job.
func runUntil(t *testing.T, ended <-chan struct{}, every string, work func(context.Context, singleton.Run) error, cfg singleton.JobConfig) []singleton.HistoryEntry {
	t.Helper()
	client, err := lockcore.New(lockcoretest.NewRedis(t).Client(), lockcore.Config{})
	testenv.Must(t, err)
	defer client.Close(context.Background())
	runner, err := singleton.NewRunner(client, singleton.Config{})
	if err == nil {
		err = runner.Add("lottery", every, work, cfg)
	}
	testenv.Must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go func() {
		select {
		case <-ended:
		case <-ctx.Done():
		}
		stop()
	}()
	testenv.Must(t, runner.Run(ctx))
	select {
	case <-ended:
	default:
		t.Fatal("the runs did not end within a minute")
	}
	job, err := singleton.NewJob(client, "lottery")
	testenv.Must(t, err)
	runs, err := job.Runs(t.Context(), 1000)
	testenv.Must(t, err)
	return runs
}

func onSQLite(t *testing.T) *node {
	t.Helper()
	d := &database{dialect: sqlonce.SQLite, path: filepath.Join(t.TempDir(), "test.db")}
	return d.node(t, sqlonce.Config{}, nil)
}

// A Runner records a run whose function has ended its transaction as unknown, and does not retry
// the tick.
func TestFault82_TheTickIsRecordedAsUnknown(t *testing.T) {
	t.Parallel()
	n := onSQLite(t)
	var calls atomic.Int32
	ended := make(chan struct{})
	runs := runUntil(t, ended, "@every 1s", func(ctx context.Context, r singleton.Run) error {
		run := r.Marker()
		_, err := n.once.Do(ctx, run, func(ctx context.Context, tx *sql.Tx) error {
			if calls.Add(1) == 1 {
				defer close(ended)
			}
			_, _ = tx.ExecContext(ctx, "ROLLBACK")
			return errors.Join(n.write(ctx, tx, run), errors.New("no luck"))
		})
		return err
	}, singleton.JobConfig{MaxAttempts: 5, Retry: 100 * time.Millisecond})
	if len(runs) == 0 || runs[0].Outcome != singleton.OutcomeUnknown || calls.Load() != 1 {
		t.Errorf("recorded as %+v after %d calls; want unknown after one", runs, calls.Load())
	}
}

// The ticks of a job may overlap, and the first one waits until a later one with a greater token
// has committed. Both take effect.
func TestOverlappingTicksTakeEffect(t *testing.T) {
	t.Parallel()
	n := onSQLite(t)
	var mu sync.Mutex
	var begun []sqlonce.Marker
	later, ended := make(chan struct{}), make(chan struct{})
	runUntil(t, ended, "@every 200ms", func(ctx context.Context, r singleton.Run) error {
		run := r.Marker()
		mu.Lock()
		begun = append(begun, run)
		number := len(begun)
		mu.Unlock()
		if number == 1 {
			select {
			case <-later:
			case <-ctx.Done():
			}
		}
		applied, err := n.once.Do(ctx, run, n.effect(run))
		if err != nil || !applied {
			t.Errorf("tick %v, token %d: Do = %v, %v", run.Tick, run.Token, applied, err)
		}
		switch number {
		case 1:
			close(ended)
		case 2:
			close(later)
		}
		return err
	}, singleton.JobConfig{AllowOverlap: true})
	first, second := begun[0], begun[1]
	if second.Token <= first.Token || !second.Tick.After(first.Tick) {
		t.Fatalf("first %+v, then %+v", first, second)
	}
	n.expect(t, first, 1, 1)
	n.expect(t, second, 1, 1)
}
