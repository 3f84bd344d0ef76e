package sqlcheck

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

// Two replicas run a job whose ticks may overlap, with the default sqlonce. The first tick
// waits until a later one with a greater token has committed. Both take effect once and are
// recorded.
func TestOverlappingTicksTakeEffect(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, d *database) {
		server := lockcoretest.NewRedis(t)
		var look *node
		var lock sync.Mutex
		var first, second sqlonce.Marker
		begin := func(run sqlonce.Marker) (isFirst, isLater bool) {
			lock.Lock()
			defer lock.Unlock()
			if first.Job == "" {
				first = run
			}
			return first.Tick.Equal(run.Tick), run.Tick.After(first.Tick)
		}
		later, over := make(chan struct{}), make(chan struct{})
		var once, twice sync.Once
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			n := d.node(t, sqlonce.Config{}, nil)
			look = n
			rdb := redis.NewClient(server.Options())
			client, err := lockcore.New(rdb, lockcore.Config{Identity: name})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				client.Close(context.Background())
				rdb.Close()
			})
			runner, err := singleton.NewRunner(client, singleton.Config{})
			if err != nil {
				t.Fatal(err)
			}
			err = runner.Add("lottery", "@every 200ms", func(ctx context.Context, r singleton.Run) error {
				run := r.Marker()
				isFirst, isLater := begin(run)
				if isFirst {
					select {
					case <-later:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				applied, err := n.once.Do(ctx, run, n.effect(run))
				if err != nil || !applied {
					t.Errorf("tick %v, token %d: Do = %v, %v", run.Tick, run.Token, applied, err)
				}
				if isFirst {
					twice.Do(func() { close(over) })
				}
				if isLater {
					once.Do(func() {
						second = run
						close(later)
					})
				}
				return err
			}, singleton.JobConfig{Overlap: singleton.OverlapAllow, KeepRuns: 1000})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() {
				if err := runner.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			t.Error("the first tick did not end")
		}
		stop()
		running.Wait() // ended runs have been recorded
		if second.Token <= first.Token || !second.Tick.After(first.Tick) {
			t.Fatalf("first %+v, then %+v", first, second)
		}
		reader, err := lockcore.New(server.Client(), lockcore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close(t.Context())
		job, err := singleton.NewJob(reader, "lottery")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := job.Runs(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range []sqlonce.Marker{first, second} {
			look.expect(t, run, 1, 1)
			succeeded := 0
			for _, e := range entries {
				if e.Tick.Equal(run.Tick) && e.Outcome == singleton.OutcomeSucceeded && e.Attempt == 1 {
					succeeded++
				}
			}
			if succeeded != 1 {
				t.Errorf("tick %v is in the history %d times as a first attempt that succeeded: %+v", run.Tick, succeeded, entries)
			}
		}
	})
}
