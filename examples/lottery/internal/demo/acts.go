package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
)

// play runs the demo: the replicas draw, stop, miss a noon, and restart.
func (d *demo) play(ctx context.Context, list entrants.List) error {
	if err := d.act(ctx, lastNoon); err != nil {
		return err
	}
	if d.cut == nil {
		return fmt.Errorf("%w: no replica was cut off", ErrFailed)
	}
	missed := d.noon(missedNoon)
	d.heading("ALL REPLICAS STOP")
	d.line("-", fmt.Sprintf("%s was cut off, and now the others stop too. Noon %d is at %s.", d.cut.name, missedNoon, missed.Local().Format(time.TimeOnly)))
	if err := sleepUntil(ctx, missed.Add(every/6)); err != nil {
		return err
	}
	d.line("-", fmt.Sprintf("noon %d has passed while no replica was running", missedNoon))
	if _, err := d.cast(ctx, list); err != nil {
		return err
	}
	d.back = time.Now()
	d.line("-", "A, B and C are started again")
	return d.act(ctx, noons)
}

// act runs the replicas until the given noon was drawn and all have stopped.
func (d *demo) act(ctx context.Context, until int) error {
	running, end := context.WithCancel(ctx)
	defer end()
	d.mu.Lock()
	d.until, d.end = until, end
	d.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range d.replicas {
		wg.Go(func() { r.run(running) })
	}
	wg.Wait() // a replica that is drawing finishes and records its draw
	d.late.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// noon returns the instant of a noon. It is valid after the first noon.
func (d *demo) noon(number int) time.Time { return d.first.Add(time.Duration(number-1) * every) }

// cast replaces the replicas by new ones. The replicas share no state with each other or
// with earlier ones.
func (d *demo) cast(ctx context.Context, list entrants.List) (entrants.Totals, error) {
	for _, r := range d.replicas {
		r.close(ctx)
	}
	d.replicas = nil
	for _, name := range []string{"A", "B", "C"} {
		r, err := d.newReplica(ctx, name, d.redis.Addr(), d.dsn)
		if err != nil {
			return entrants.Totals{}, err
		}
		d.replicas = append(d.replicas, r)
	}
	return d.prepare(ctx, list)
}

// prepare opens the database and loads the entrants in all replicas concurrently.
func (d *demo) prepare(ctx context.Context, list entrants.List) (entrants.Totals, error) {
	totals := make([]entrants.Totals, len(d.replicas))
	errs := make([]error, len(d.replicas))
	var wg sync.WaitGroup
	for i, r := range d.replicas {
		wg.Go(func() { totals[i], errs[i] = r.prepare(ctx, list) })
	}
	wg.Wait()
	return totals[0], errors.Join(errs...)
}
