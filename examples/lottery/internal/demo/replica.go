//go:build !nodemo

package demo

import (
	"context"

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
	stop    func()
}

func (d *demo) newReplica(ctx context.Context, name string) (err error) {
	r := &replica{name: name, demo: d, network: lockcoretest.NewFaults()}
	rdb := redis.NewClient(d.redis.OptionsVia(r.network))
	defer rdb.Close() // lockcore opens its own connections with the same options
	if r.client, err = lockcore.New(rdb, lockcore.Config{Identity: name}); err != nil {
		return err
	}
	r.drawing = noon.Drawing{Winners: winners, Written: func(run singleton.Run, ids []string) error { return d.written(r, run, ids) }}
	d.replicas = append(d.replicas, r) // closed with the demo
	if r.drawing.Store, err = store.Open(ctx, d.database, noon.StoreConfig(lease), d.list, nil); err != nil {
		return err
	}
	if r.runner, err = singleton.NewRunner(r.client, singleton.Config{TTL: lease}); err != nil {
		return err
	}
	return r.runner.Add(noon.Job, spec, r.work, noon.JobConfig)
}

// run draws noons until ctx ends or the replica is cut off.
func (r *replica) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.stop = func() {
		stop()
		r.release(ctx) // Redis is unreachable: this only ends the goroutines
	}
	_ = r.runner.Run(ctx) // fails only if it runs already
}

func (r *replica) work(ctx context.Context, run singleton.Run) error {
	r.demo.claimed(r, run)
	err := r.drawing.Draw(ctx, run)
	if err == nil {
		r.demo.committed(ctx, r, run)
	}
	return err
}

// sever closes all connections to Redis, prevents new ones, and returns how many it closed.
func (r *replica) sever() int {
	_, _ = r.network.Add(lockcoretest.Fault{Kind: lockcoretest.RefuseDial}) // this fault is valid
	go r.stop()
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
