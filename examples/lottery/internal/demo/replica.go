package demo

import (
	"context"
	"database/sql"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// replica is one of the three replicas. All run the same code. They share only the addresses
// of Redis and the database.
type replica struct {
	name    string
	demo    *demo
	network *lockcoretest.Faults // to Redis
	client  *lockcore.Client
	runner  *singleton.Runner
	drawing noon.Drawing
	gone    chan struct{} // closed when the replica is cut off
}

func (d *demo) newReplica(ctx context.Context, name string) (*replica, error) {
	r := &replica{name: name, demo: d, network: lockcoretest.NewFaults(), gone: make(chan struct{})}
	rdb := redis.NewClient(d.redis.OptionsVia(r.network))
	defer rdb.Close() // lockcore opens its own connections with the same options
	var err error
	if r.client, err = lockcore.New(rdb, lockcore.Config{Identity: name}); err != nil {
		return nil, err
	}
	r.drawing = noon.Drawing{Winners: winners, Written: func(_ context.Context, _ *sql.Tx, run singleton.Run, ids []string) error {
		return d.written(r, run, ids)
	}}
	if r.drawing.Store, err = store.Open(ctx, d.dsn, noon.StoreConfig(lease)); err == nil {
		r.runner, err = singleton.NewRunner(r.client, singleton.Config{TTL: lease})
	}
	if err == nil {
		err = r.runner.AddSchedule(noon.Job, d.schedule, r.work, noon.JobConfig(nil))
	}
	if err != nil {
		r.close(ctx)
		return nil, err
	}
	return r, nil
}

// run draws noons until ctx ends or the replica is cut off.
func (r *replica) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-r.gone:
			stop()
			release(ctx, r.client) // Redis is unreachable: this only ends the goroutines
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

// sever closes all connections to Redis, prevents new ones, and returns how many it closed.
func (r *replica) sever() int {
	_, _ = r.network.Add(lockcoretest.Fault{Kind: lockcoretest.RefuseDial}) // this fault is valid
	close(r.gone)
	return r.network.Cut()
}

func (r *replica) close(ctx context.Context) {
	release(ctx, r.client)
	if r.drawing.Store != nil {
		r.drawing.Store.Close()
	}
}
