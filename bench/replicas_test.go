package bench_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
)

// grant is the usual acquire of a simple Redis lock, as a script.
var grant = redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)

// BenchmarkMinReplicas: one goroutine, no contention, and a replica that acknowledges each grant.
func BenchmarkMinReplicas(b *testing.B) {
	x := start(b)
	ctx := b.Context()
	servers.Redis(b, x.server.ReplicaOf())
	synced := func() bool { return x.rdb.Wait(ctx, 1, time.Second).Val() == 1 }
	for !synced() {
		time.Sleep(10 * time.Millisecond)
	}
	c := x.client()
	replicated := x.mutex(c, "bench", lockcore.LeaseConfig{MinReplicas: 1})
	alone := x.mutex(c, "alone", lockcore.LeaseConfig{})
	kinds := map[string]func(){
		"noonlock":   func() { x.cycle(ctx, replicated) },
		"raw + WAIT": func() { x.rawReplicatedCycle(ctx, "raw") },
		"alone":      func() { x.cycle(ctx, alone) },
	}
	for b.Loop() {
		samples := map[string][]float64{}
		for _, f := range kinds {
			each(block, f) // warm up
		}
		for range pairs {
			for name, f := range kinds { // in random order
				samples[name] = append(samples[name], each(block, f))
			}
		}
		x.keep(samples)
		b.ReportMetric(ratio(samples["noonlock"], samples["raw + WAIT"]), "x_raw+WAIT")
		b.ReportMetric(ratio(samples["noonlock"], samples["alone"]), "x_MinReplicas=0")
		b.ReportMetric(median(samples["noonlock"])/1e3, "us/cycle")
	}
}

// rawReplicatedCycle sends the grant and WAIT in one round trip.
func (x *bench) rawReplicatedCycle(ctx context.Context, key string) {
	pipe := x.rdb.Pipeline()
	set := grant.EvalSha(ctx, pipe, []string{key}, "holder", 10000)
	wait := pipe.Do(ctx, "wait", 1, 1000)
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = grant.Run(ctx, x.rdb, []string{key}, "holder", 10000).Err()
	} else if n, _ := wait.Int(); err == nil && n != 1 {
		x.b.Errorf("%v, and %d replicas", set, n)
	}
	if err != nil {
		x.b.Error(err)
	}
	if err := compareAndDelete.Run(ctx, x.rdb, []string{key}, "holder").Err(); err != nil {
		x.b.Error(err)
	}
}
