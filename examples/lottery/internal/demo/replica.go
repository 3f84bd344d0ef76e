package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// replica is one of the three replicas. All run the same code. They share only the addresses
// of Redis and the database.
type replica struct {
	name    string
	demo    *demo
	dsn     store.DSN
	wire    *wire
	client  *lockcore.Client
	runner  *singleton.Runner
	drawing noon.Drawing
	gone    chan struct{} // closed when the replica is cut off
}

func (d *demo) newReplica(ctx context.Context, name, address string, dsn store.DSN) (*replica, error) {
	r := &replica{name: name, demo: d, dsn: dsn, wire: newWire(), gone: make(chan struct{})}
	rdb := redis.NewClient(&redis.Options{Addr: address, Dialer: r.wire.dial})
	defer rdb.Close() // lockcore opens its own connections with the same options
	var err error
	if r.client, err = lockcore.New(rdb, lockcore.Config{Identity: name}); err != nil {
		return nil, err
	}
	if r.runner, err = singleton.NewRunner(r.client, singleton.Config{TTL: lease}); err == nil {
		err = r.runner.AddSchedule(noon.Job, d.schedule, r.work, noon.JobConfig(nil))
	}
	if err != nil {
		r.close(ctx)
		return nil, err
	}
	r.drawing = noon.Drawing{Winners: winners, Written: r.written}
	return r, nil
}

func (r *replica) prepare(ctx context.Context, list entrants.List) (entrants.Totals, error) {
	st, err := store.Open(ctx, r.dsn, noon.StoreConfig(lease))
	if err != nil {
		return entrants.Totals{}, err
	}
	r.drawing.Store = st
	return st.LoadEntrants(ctx, list)
}

// run draws noons until ctx ends or the replica is cut off.
func (r *replica) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-r.gone:
			stop()
			r.closeClient(ctx) // Redis is unreachable: this only ends the goroutines
		case <-ctx.Done():
		}
	}()
	if err := r.runner.Run(ctx); err != nil {
		r.demo.failed(r, err)
	}
}

// work draws one noon.
func (r *replica) work(ctx context.Context, run singleton.Run) error {
	r.demo.claimed(r, run)
	err := r.drawing.Draw(ctx, run)
	if err != nil {
		r.demo.failed(r, err)
		return err
	}
	r.demo.committed(ctx, r, run)
	return nil
}

var errCutOff = errors.New("cut off")

// written cuts the replica off if the demo decides so. A process that dies here has the same
// effect: the system closes its connections, and the database rolls the transaction back.
func (r *replica) written(_ context.Context, _ *sql.Tx, run singleton.Run, ids []string) error {
	if !r.demo.written(r, run, ids) {
		return nil
	}
	r.demo.severed(r, r.wire.sever())
	close(r.gone)
	return errCutOff
}

// closeClient releases all leases if Redis can be reached, even if ctx has ended.
func (r *replica) closeClient(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	_ = r.client.Close(ctx) // what cannot be released will expire
}

func (r *replica) close(ctx context.Context) {
	r.closeClient(ctx)
	if r.drawing.Store != nil {
		r.drawing.Store.Close()
	}
}
