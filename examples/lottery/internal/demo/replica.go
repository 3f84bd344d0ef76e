package demo

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// replica is one of the three replicas. They share only the addresses of Redis and the database.
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
	r.drawing = noon.Drawing{Winners: winners, Written: func(run singleton.Run, ids []string) error { return d.written(r, run, ids) }}
	if r.drawing.Store, err = store.Open(ctx, d.database, noon.StoreConfig(lease)); err == nil {
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
			r.release(ctx) // Redis is unreachable: this only ends the goroutines
		case <-ctx.Done():
		}
	}()
	_ = r.runner.Run(ctx) // fails only if it runs already
}

// work draws one noon.
func (r *replica) work(ctx context.Context, run singleton.Run) error {
	r.demo.claimed(r, run)
	err := r.drawing.Draw(ctx, run)
	if err == nil {
		r.demo.committed(ctx, r, run)
	}
	return err
}

var errCutOff = errors.New("cut off")

// sever closes all connections to Redis, prevents new ones, and returns how many it closed.
func (r *replica) sever() int {
	_, _ = r.network.Add(lockcoretest.Fault{Kind: lockcoretest.RefuseDial}) // this fault is valid
	close(r.gone)
	return r.network.Cut()
}

func (r *replica) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	_ = r.client.Close(ctx) // what cannot be released will expire
}

func (r *replica) close(ctx context.Context) {
	r.release(ctx)
	if r.drawing.Store != nil {
		r.drawing.Store.Close()
	}
}
