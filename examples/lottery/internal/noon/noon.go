// Package noon is the job that all replicas run: at each noon, draw winners from
// the eligible entrants and record them, once, whoever comes to do it.
package noon

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Job is the name under which ledger and database know the lottery.
const Job = "lottery"

// KeepRuns is how many noons the ledger remembers: 27 years of daily ones.
const KeepRuns = 10_000

// maxAttempts is how often one noon is tried before it is given up. With a pause
// of a minute between tries a database may be away for most of a day.
const maxAttempts = 1000

// JobConfig is how the job is run. A noon that nobody could draw in time is drawn
// late rather than skipped: the entrants have been promised one.
func JobConfig(location *time.Location) singleton.JobConfig {
	return singleton.JobConfig{
		TimeZone:    location,
		CatchUp:     singleton.CatchUpAll,
		MaxAttempts: maxAttempts,
		KeepRuns:    KeepRuns,
	}
}

// StoreConfig fits the database's patience with a frozen replica to the lease:
// it is thrown out at about the time at which another takes its noon over.
func StoreConfig(lease time.Duration) sqlonce.Config {
	return sqlonce.Config{IdleTimeout: max(lease.Round(time.Second), time.Second)}
}

// Drawing draws noons. Its fields are not changed once it is in use.
type Drawing struct {
	Store   *store.Store
	Winners int // of each noon

	// Random decides who wins. Default crypto/rand.Reader.
	Random io.Reader

	// Logger gets a line for each noon that was drawn; its zero value discards.
	Logger logr.Logger

	// Written, if set, is called when the winners are written and not committed
	// yet. Its error undoes them. It may be called more than once for one run.
	Written func(ctx context.Context, tx *sql.Tx, run singleton.Run, winners []string) error
}

// Draw is the work of one run: a singleton.Func. The noon is drawn in the same
// transaction that marks it as drawn, so it does not matter how often, by how
// many replicas or how late this is called: one of the calls has an effect.
func (d *Drawing) Draw(ctx context.Context, run singleton.Run) error {
	log := d.Logger.WithValues("job", run.Job, "tick", run.Tick, "attempt", run.Attempt, "token", run.Token)
	applied, err := d.Store.Once().Do(ctx, run.Marker(), func(ctx context.Context, tx *sql.Tx) error {
		return d.write(ctx, tx, run)
	})
	switch {
	case err != nil:
		return err
	case applied:
		log.Info("draw committed", "winners", d.Winners)
	default:
		log.Info("draw had been committed before")
	}
	return nil
}

func (d *Drawing) write(ctx context.Context, tx *sql.Tx, run singleton.Run) error {
	random := d.Random
	if random == nil {
		random = rand.Reader
	}
	sample, err := draw.New(d.Winners, random)
	if err != nil {
		return err
	}
	if err := d.Store.EachEligible(ctx, tx, sample.Add); err != nil {
		return err
	}
	winners, err := sample.Winners()
	if err != nil {
		return err
	}
	err = d.Store.RecordDraw(ctx, tx, store.Draw{
		Job: run.Job, Tick: run.Tick, Attempt: run.Attempt, Token: run.Token,
		DrawnBy: run.Holder, DrawnAt: time.Now(),
	}, winners)
	if err != nil || d.Written == nil {
		return err
	}
	return d.Written(ctx, tx, run, winners)
}

// maxNoons bounds the noons of one range: a million of them are 2,700 years of
// daily ones.
const maxNoons = 1_000_000

// Between returns the noons t of the schedule with since ≤ t < until.
func Between(schedule singleton.Schedule, since, until time.Time) ([]time.Time, error) {
	var noons []time.Time
	for t := schedule.Next(since.Add(-1)); !t.IsZero() && t.Before(until); t = schedule.Next(t) {
		if len(noons) == maxNoons {
			return nil, fmt.Errorf("the range has more than %d noons; look at a shorter one", maxNoons)
		}
		noons = append(noons, t)
	}
	return noons, nil
}
