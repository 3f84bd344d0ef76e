//go:build peers

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	redislocker "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// onEtcd has a session that lasts as long as etcd keeps it alive. The revision at the grant is a token.
func onEtcd(w *worker, _ []*redis.Client) (acquire, error) {
	address := w.URLs[0][len("http://"):]
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address}, Logger: zap.NewNop(),
		DialTimeout: w.TTL, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: w.TTL,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return w.Dial(ctx, "tcp", to)
		})},
	})
	if err != nil {
		return nil, err
	}
	var session *concurrency.Session
	return func(ctx context.Context) (*lease, error) {
		if session == nil || session.Ctx().Err() != nil {
			// NewSession would ask for the lease without this context.
			lease, err := client.Grant(ctx, int64(w.TTL/time.Second))
			if err != nil {
				return nil, err
			}
			if session, err = concurrency.NewSession(client, concurrency.WithLease(lease.ID)); err != nil {
				return nil, err
			}
		}
		m := concurrency.NewMutex(session, shared)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		//nolint:contextcheck // the session has its own
		return unlimited(uint64(m.Header().GetRevision()), session.Ctx().Err, func(ctx context.Context) error {
			limited, cancel := context.WithTimeout(ctx, w.TTL)
			defer cancel()
			err := m.Unlock(limited)
			if err != nil {
				session.Orphan()
			}
			return err
		}), nil
	}, nil
}

// onClientGo has an elector for each lease. Its times are as far apart as client-go's 15, 10 and 2 s. Bind is what
// noonlock's lock adds.
func onClientGo(w *worker, bind bool) (acquire, error) {
	client, err := w.Connect(lockcore.Config{Identity: w.Process})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*lease, error) {
		lock, err := clientgo.NewLock(client, shared, clientgo.Config{Identity: w.Process, RequestTimeout: w.TTL * 2 / 75})
		if err != nil {
			return nil, err
		}
		started, ended := make(chan context.Context, 1), make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: w.TTL, RenewDeadline: w.TTL * 2 / 3, RetryPeriod: w.TTL * 2 / 15,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(lead context.Context) { started <- lead },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return nil, err
		}
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(ended)
			elector.Run(running)
		}()
		release := func(context.Context) error {
			cancel()
			<-ended
			return nil
		}
		select {
		case lead := <-started:
			if bind {
				lead, _ = lock.Bind(lead)
			}
			return unlimited(0, lead.Err, release), nil //nolint:contextcheck // it is the elector's
		case <-ended:
			cancel()
			return nil, errOver
		case <-ctx.Done():
			return nil, errors.Join(release(ctx), ctx.Err())
		}
	}, nil
}

// gocron runs a job with redsync's locker. A tick takes so long that a replica whose timer is a little late finds it
// locked. The lock is not renewed, so it lasts for some times as long.
func (w *worker) gocron(ctx context.Context, rdb *redis.Client) error {
	locker, err := redislocker.NewRedisLockerAlways(rdb, redislocker.WithTries(1), redislocker.WithExpiry(w.TTL))
	if locker == nil {
		return err
	}
	jobs, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker), gocron.WithLocation(time.UTC))
	if err != nil {
		return err
	}
	work := func(ctx context.Context) {
		tick := time.Now().Truncate(w.Every).UnixMilli()
		retry.Sleep(ctx, w.TTL/6, nil)
		w.log.Add(history.Event{What: history.Run, Kind: history.Job, Tick: tick, Outcome: "done"})
	}
	schedule := gocron.CronJob(fmt.Sprintf("*/%d * * * * *", w.Every/time.Second), true)
	if _, err := jobs.NewJob(schedule, gocron.NewTask(work), gocron.WithName("report")); err != nil {
		return err
	}
	jobs.Start()
	<-ctx.Done()
	return jobs.Shutdown()
}
