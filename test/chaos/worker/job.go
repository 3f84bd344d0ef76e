package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// job runs a job whose ticks each write one row.
func (w *worker) job(ctx context.Context) error {
	const name = "report"
	db, err := sql.Open("mysql", w.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	once, err := sqlonce.New(db, sqlonce.MySQL, sqlonce.Config{IdleTimeout: w.TTL.Truncate(1e9)})
	if err != nil {
		return err
	}
	runner, err := singleton.NewRunner(w.client, singleton.Config{TTL: w.TTL, Drain: w.TTL, ShutdownTimeout: 3 * w.TTL})
	if err != nil {
		return err
	}
	r := w.random(history.Job)
	work := func(ctx context.Context, run singleton.Run) error {
		t := w.ask(history.Job, name, "", 0)
		t.about.Tick = run.RunID.Key()
		l := of(lockcore.FromContext(ctx))
		if !t.granted(l, l.check()) {
			return l.check()
		}
		_, err := once.Do(ctx, run.Marker(), func(ctx context.Context, tx *sql.Tx) error {
			const insert = "INSERT INTO effects (tick, token, process) VALUES (?, ?, ?)"
			_, err := tx.ExecContext(ctx, insert, run.RunID.Key(), run.Token, w.Process)
			return err
		})
		if t.work(ctx, r, l, true, false) {
			t.ended(l)
		}
		return err
	}
	cfg := singleton.JobConfig{CatchUp: singleton.CatchUpAll, KeepRuns: 1000, MaxAttempts: 50}
	if err := runner.Add(name, fmt.Sprint("@every ", w.Every), work, cfg); err != nil {
		return err
	}
	return runner.Run(ctx)
}
