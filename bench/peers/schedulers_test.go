package peers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jonboulle/clockwork"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A scheduler runs a job every other second on one replica, until ctx ends. Its clock is ahead.
type scheduler struct {
	name  string
	start func(ctx context.Context, x *bench, s *server, wg *sync.WaitGroup, ahead time.Duration, work func())
}

// schedulers: five replicas with a job that is due every other second. All kinds are measured at
// the same time, since they mostly wait.
func schedulers(x *bench) {
	apart := []time.Duration{-127300 * time.Millisecond, -61100 * time.Millisecond, 0, 59400 * time.Millisecond, 191900 * time.Millisecond}
	all := []scheduler{
		{"noonlock", startRunner},
		{"gocron + redsync, equal clocks", func(ctx context.Context, x *bench, s *server, wg *sync.WaitGroup, _ time.Duration, work func()) {
			startGocron(ctx, x, s, wg, 0, work)
		}},
		{"gocron + redsync, clocks minutes apart", startGocron},
	}
	const interval, ticks = 2 * time.Second, 10
	t := x.table("", "scheduler")
	for range *repetitions {
		runs := make([]atomic.Int64, len(all))
		stops := make([]func() (sent, inside float64), len(all))
		ctx, cancel := context.WithCancel(x.ctx())
		var wg sync.WaitGroup
		on := make([]*server, len(all))
		for i, kind := range all {
			on[i] = x.serve(raw)
			for _, ahead := range apart {
				kind.start(ctx, x, on[i], &wg, ahead, func() { runs[i].Add(1) })
			}
		}
		sleep(ctx, 2*interval)
		before := make([]int64, len(all))
		for i := range all {
			stops[i], before[i] = on[i].count(), runs[i].Load()
		}
		sleep(ctx, ticks*interval)
		for i, kind := range all {
			sent, _ := stops[i]()
			t.add(kind.name, "runs of a tick", float64(runs[i].Load()-before[i])/ticks)
			t.add(kind.name, "commands of a tick", sent/ticks)
		}
		cancel()
		wg.Wait()
	}
}

// startRunner starts a noonlock Runner. It reads the server's clock alone.
func startRunner(ctx context.Context, x *bench, s *server, wg *sync.WaitGroup, _ time.Duration, work func()) {
	x.b.Helper()
	rdb := newRedis(s.addr, options{})
	c, err := lockcore.New(rdb, lockcore.Config{})
	x.check(err)
	r, err := singleton.NewRunner(c, singleton.Config{})
	x.check(err)
	x.check(r.Add("job", "@every 2s", func(context.Context, singleton.Run) error {
		work()
		return nil
	}, singleton.JobConfig{}))
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			x.b.Error(err)
		}
		_ = c.Close(context.Background())
		_ = rdb.Close()
	})
}

// startGocron starts a scheduler with a distributed locker on redsync, which tries once.
func startGocron(ctx context.Context, x *bench, s *server, wg *sync.WaitGroup, ahead time.Duration, work func()) {
	x.b.Helper()
	rdb := newRedis(s.addr, options{})
	scheduler, err := gocron.NewScheduler(
		gocron.WithDistributedLocker(locker{redsync.New(goredis.NewPool(rdb))}),
		gocron.WithClock(wrongClock{clockwork.NewRealClock(), ahead}),
	)
	x.check(err)
	_, err = scheduler.NewJob(gocron.CronJob("*/2 * * * * *", true), gocron.NewTask(work), gocron.WithName("job"))
	x.check(err)
	scheduler.Start()
	wg.Go(func() {
		<-ctx.Done()
		_ = scheduler.Shutdown()
		_ = rdb.Close()
	})
}

// A locker is gocron's locker with redsync.
type locker struct{ *redsync.Redsync }

func (l locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	m := l.NewMutex(key, redsync.WithTries(1))
	return lock{m}, m.LockContext(ctx)
}

type lock struct{ *redsync.Mutex }

func (l lock) Unlock(ctx context.Context) error {
	_, err := l.UnlockContext(ctx)
	return err
}

// A wrongClock is ahead of the real one.
type wrongClock struct {
	clockwork.Clock
	ahead time.Duration
}

func (c wrongClock) Now() time.Time                  { return c.Clock.Now().Add(c.ahead) }
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c wrongClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }
