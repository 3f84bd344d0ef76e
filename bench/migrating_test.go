package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	redislocker "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/kubernetes/typed/coordination/v1/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// The functions from here on are the code of the other libraries in docs/MIGRATING.md.

func runController(ctx context.Context, leases coordinationv1.LeasesGetter, identity string, stopped func()) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "my-controller"},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: reconcileUntil, // nothing waits for its end
			OnStoppedLeading: stopped,        // usually os.Exit, as the work may still run
		},
	})
}

func chargeOrderByRedislock(ctx context.Context, rdb *redis.Client, order string) error {
	lock, err := redislock.New(rdb).Obtain(ctx, "charge/"+order, 8*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond), // until 8 s are over
	})
	if err != nil {
		return err
	}
	err = charge(ctx, order) // must end within 8 s
	return errors.Join(err, lock.Release(context.WithoutCancel(ctx)))
}

func chargeOrderByRedsync(ctx context.Context, rdb *redis.Client, order string) error {
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex("charge/" + order)
	if err := mutex.LockContext(ctx); err != nil { // tries 32 times
		return err
	}
	err := charge(ctx, order) // must end within 8 s
	_, unlockErr := mutex.UnlockContext(context.WithoutCancel(ctx))
	return errors.Join(err, unlockErr)
}

func chargeOrderByRueidislock(ctx context.Context, locker rueidislock.Locker, order string) error {
	ctx, unlock, err := locker.WithContext(ctx, "charge/"+order)
	if err != nil {
		return err
	}
	defer unlock()
	return charge(ctx, order)
}

func runReports(ctx context.Context, rdb *redis.Client) error {
	locker, err := redislocker.NewRedisLocker(rdb)
	if err != nil {
		return err
	}
	jobs, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	_, err = jobs.NewJob(gocron.CronJob("*/5 * * * *", false), gocron.NewTask(report), gocron.WithName("report"))
	if err != nil {
		return err
	}
	jobs.Start()
	<-ctx.Done()
	return jobs.Shutdown()
}

// End of the code of docs/MIGRATING.md.

var working = make(chan context.Context, 1)

func reconcileUntil(ctx context.Context)         { working <- ctx; <-ctx.Done() }
func charge(ctx context.Context, _ string) error { working <- ctx; return nil }
func report(context.Context) error               { return nil }

// The programs work on servers as they are shown.
func TestMigratingPrograms(t *testing.T) {
	addr := servers.Redis(t).Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	api := &kubetesting.Fake{}
	api.AddReactor("*", "*", kubetesting.ObjectReaction(kubetesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())))
	for name, run := range map[string]func(ctx context.Context) error{
		"client-go": func(ctx context.Context) error {
			stopped := false
			runController(ctx, &fake.FakeCoordinationV1{Fake: api}, "a", func() { stopped = true })
			if !stopped {
				return errors.New("OnStoppedLeading was not called")
			}
			return nil
		},
		"redislock":   func(ctx context.Context) error { return chargeOrderByRedislock(ctx, rdb, "7") },
		"redsync":     func(ctx context.Context) error { return chargeOrderByRedsync(ctx, rdb, "7") },
		"rueidislock": func(ctx context.Context) error { return chargeOrderByRueidislock(ctx, locker, "7") },
		"gocron":      func(ctx context.Context) error { working <- ctx; return runReports(ctx, rdb) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- run(ctx) }()
			select {
			case <-working:
			case err := <-ended:
				t.Fatal("ended without work:", err)
			}
			if name == "client-go" || name == "gocron" {
				cancel()
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			cancel()
		})
	}
}
