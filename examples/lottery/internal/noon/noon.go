// Package noon is the job that all replicas run. At each noon it draws winners from the eligible
// entrants and records them once, whichever replica runs it. Each replica adds it to its
// singleton.Runner:
//
//	runner.Add(noon.Job, schedule, drawing.Draw, noon.JobConfig)
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

// Job is the name of the job in the ledger and in the database.
const Job = "lottery"

// JobConfig is the configuration of the job. A noon that could not be drawn in time is drawn
// late: the entrants were promised a draw. With a pause of a minute between attempts, the database
// may be away for most of a day. The ledger keeps the daily noons of more than two years.
var JobConfig = singleton.JobConfig{CatchUp: singleton.CatchUpAll, MaxAttempts: 1000, KeepRuns: 1000}

// StoreConfig makes the database end the transaction of a frozen replica after about one lease,
// which is when another replica takes over.
func StoreConfig(lease time.Duration) sqlonce.Config {
	return sqlonce.Config{IdleTimeout: max(lease.Round(time.Second), time.Second)}
}

// Drawing draws noons. Its fields must not change after the first use.
type Drawing struct {
	Store   *store.Store
	Winners int         // per noon
	Logger  logr.Logger // receives a line for each draw

	// Written, if set, is called after the winners are written and before the commit. Its error
	// rolls them back.
	Written func(run singleton.Run, winners []string) error
}

// Draw draws the noon of a run. The winners and a marker of the noon are committed in one
// transaction. So however often, however late and by however many replicas Draw is called, one
// call has an effect.
func (d *Drawing) Draw(ctx context.Context, run singleton.Run) error {
	applied, err := d.Store.Once().Do(ctx, run.Marker(), func(ctx context.Context, tx *sql.Tx) error {
		entrants, err := d.Store.Entrants(ctx, tx)
		if err != nil {
			return err
		}
		winners, err := draw.Winners(entrants.Eligible(), d.Winners)
		if err != nil {
			return err
		}
		if err = d.Store.Record(ctx, tx, run, winners); err == nil {
			err = d.Store.Admitted(ctx, tx)
		}
		if err != nil || d.Written == nil {
			return err
		}
		return d.Written(run, winners)
	})
	if err != nil {
		return err
	}
	message := "draw committed"
	if !applied {
		message = "draw was already committed"
	}
	d.Logger.Info(message, "job", run.Job, "tick", run.Tick, "triggered", run.Triggered, "attempt", run.Attempt, "token", run.Token)
	return nil
}
