package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/audit"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// check looks at the database and the ledger, and says what it has found.
func (d *demo) check(ctx context.Context) error {
	r := d.survivor()
	if r == nil {
		return fmt.Errorf("%w: nobody was cut off", ErrFailed)
	}
	ledger, err := r.client.Ledger(noon.Job, lockcore.LedgerConfig{})
	if err != nil {
		return err
	}
	report, err := audit.Check(ctx, r.drawing.Store, ledger, d.expected())
	if err != nil {
		return err
	}
	draws, err := r.drawing.Store.Draws(ctx, noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
	if err != nil {
		return err
	}
	taken := drawOf(draws, d.stale.Tick)

	d.heading("CHECKING THE DATABASE")
	held := true
	verdict := func(ok bool, format string, args ...any) {
		held = held && ok
		d.verdict(ok, fmt.Sprintf(format, args...))
	}
	verdict(len(draws) == noons && len(report.Findings) == 0, "%d noons, %d draws of %d different eligible winners each", report.Noons, len(draws), winners)
	verdict(report.Recorded == noons, "the ledger in Redis has the same %d draws, none twice, none missing", report.Recorded)
	verdict(taken.Attempt == 2 && taken.Token > d.stale.Token && taken.DrawnBy != d.cut.name,
		"noon %d: begun by %s, drawn by %s at attempt %d, under a higher token", cutNoon, d.cut.name, taken.DrawnBy, taken.Attempt)
	verdict(errors.Is(d.lateErr, sqlonce.ErrStaleToken), "noon %d: the late write of %s was refused", cutNoon, d.cut.name)
	for _, f := range report.Findings {
		d.verdict(false, f.String())
	}
	if !held {
		return fmt.Errorf("%w: not all of this holds", ErrFailed)
	}
	d.print("\nAll of this holds. With a Redis and a database of your own: go run ./examples/lottery serve --help\n\n")
	return nil
}

// survivor is a replica that was not cut off, if another was.
func (d *demo) survivor() *replica {
	for _, r := range d.replicas {
		if d.cut != nil && r != d.cut {
			return r
		}
	}
	return nil
}

func drawOf(draws []store.Draw, tick time.Time) store.Draw {
	for _, d := range draws {
		if d.Tick.Equal(tick) {
			return d
		}
	}
	return store.Draw{}
}
