// Package noon is the job that all replicas run: at each noon it draws winners from the
// eligible entrants and records them once, whichever replica runs it. Each replica adds it to
// its singleton.Runner:
//
//	runner.Add(noon.Job, "0 12 * * *", drawing.Draw, noon.JobConfig(location))
package noon

import (
	"context"
	"database/sql"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Job is the lottery's job name in the ledger and in the database.
const Job = "lottery"

// KeepRuns is the number of runs that the ledger keeps: 27 years of daily noons.
const KeepRuns = 10_000

// maxAttempts limits the attempts at one noon. With a pause of one minute between attempts,
// the database may be unavailable for most of a day.
const maxAttempts = 1000

// JobConfig returns the configuration of the job. A noon that could not be drawn in time is
// drawn late rather than skipped, since the entrants were promised a draw.
func JobConfig(location *time.Location) singleton.JobConfig {
	return singleton.JobConfig{
		TimeZone:    location,
		CatchUp:     singleton.CatchUpAll,
		MaxAttempts: maxAttempts,
		KeepRuns:    KeepRuns,
	}
}

// StoreConfig sets the database's timeout for a frozen replica to the lease: the database
// then ends its transaction at about the time at which another replica takes over.
func StoreConfig(lease time.Duration) sqlonce.Config {
	return sqlonce.Config{IdleTimeout: max(lease.Round(time.Second), time.Second)}
}

// Drawing draws noons. Its fields must not change after the first use.
type Drawing struct {
	Store   *store.Store
	Winners int // per noon

	// Logger receives a line for each drawn noon. The zero value discards them.
	Logger logr.Logger

	// Written, if set, is called after the winners are written and before the commit.
	// Its error rolls them back. It may be called more than once for one run.
	Written func(ctx context.Context, tx *sql.Tx, run singleton.Run, winners []string) error
}

// Draw is the singleton.Func of the job. It draws the noon in the same transaction that
// marks it as drawn. So however often, however late and by however many replicas it is
// called, one call has an effect.
func (d *Drawing) Draw(ctx context.Context, run singleton.Run) error {
	key := "tick"
	if run.Triggered {
		key = "triggered"
	}
	log := d.Logger.WithValues("job", run.Job, key, run.Tick, "attempt", run.Attempt, "token", run.Token)
	applied, err := d.Store.Once().Do(ctx, run.Marker(), func(ctx context.Context, tx *sql.Tx) error {
		return d.write(ctx, tx, run)
	})
	switch {
	case err != nil:
		return err
	case applied:
		log.Info("draw committed", "winners", d.Winners)
	default:
		log.Info("draw was already committed")
	}
	return nil
}

func (d *Drawing) write(ctx context.Context, tx *sql.Tx, run singleton.Run) error {
	sample := draw.New(d.Winners, draw.Secure())
	if err := d.Store.EachEligible(ctx, tx, sample.Add); err != nil {
		return err
	}
	winners, err := sample.Winners()
	if err != nil {
		return err
	}
	err = d.Store.RecordDraw(ctx, tx, store.Draw{
		Job: run.Job, RunID: run.ID(), Attempt: run.Attempt, Token: run.Token,
		DrawnBy: run.Holder, DrawnAt: time.Now(),
	}, winners)
	if err != nil || d.Written == nil {
		return err
	}
	return d.Written(ctx, tx, run, winners)
}
