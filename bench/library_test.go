package bench_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
)

// A library is one way to lock.
type library struct {
	name string
	open func(addr string, opt options) (*client, error)
	on   place
	key  string // format of the key of a held lock on Redis, for the takeover
}

// A place is what a library locks on.
type place int

const (
	oneRedis   place = iota
	replicated       // a Redis with a replica
	watched          // a Redis behind a Sentinel
	sharded          // a Redis Cluster of three primaries
	etcd
)

type options struct {
	ttl         time.Duration // 0: the library's default
	connections int           // of a pool; 0: 64
}

// A client is what one process has of a library.
type client struct {
	lock  func(ctx context.Context, name string) hold
	close func()
}

// A hold waits for a lock, calls work while it is held, and releases it.
type hold func(ctx context.Context, work func()) error

// A step acquires or releases a lock.
type step = func(ctx context.Context) error

func between(acquire, release step) hold {
	return func(ctx context.Context, work func()) error {
		if err := acquire(ctx); err != nil {
			return err
		}
		work()
		return release(ctx)
	}
}

var (
	raw         = library{name: "raw go-redis", open: onRedis(rawLock)}
	blpop       = library{name: "BLPOP", open: onRedis(popAndPush)}
	noonlock    = library{"noonlock", onNoonlock(0, mutex), oneRedis, "noonlock:{%s}:lock"}
	pipelined   = library{name: "our scripts, go-redis's autopipeline", open: autoPipeline}
	oneOf8      = library{name: "noonlock, a Semaphore of 8", open: onNoonlock(0, slot)}
	elector     = library{"noonlock, elector", onNoonlock(0, campaign), oneRedis, "noonlock:{election/%s}:lock"}
	redisLock   = library{"redislock", onRedis(obtain), oneRedis, "%s"}
	redSync     = library{"redsync", onRedis(redsyncMutex), oneRedis, "%s"}
	rueidisLock = library{"rueidislock", onLocker(time.Second), oneRedis, "rueidislock:0:%s"}
	rueidis20ms = library{name: "rueidislock, TryNextAfter 20 ms", open: onLocker(0)}
	etcdMutex   = library{name: "etcd", open: onEtcd(mutexOf), on: etcd}
	etcdElector = library{name: "etcd, elector", open: onEtcd(electionOf), on: etcd}

	oneReplica  = library{name: "noonlock, a replica", open: onNoonlock(0, mutex), on: replicated}
	minReplicas = library{name: "noonlock, a replica, MinReplicas 1", open: onNoonlock(1, mutex), on: replicated}
	inSentinel  = library{name: "noonlock, Sentinel", open: onNoonlock(0, mutex), on: watched}
	inCluster   = library{name: "noonlock, Cluster of 3", open: onNoonlock(0, mutex), on: sharded}
)

func newRedis(addr string, opt options) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: cmp.Or(opt.connections, 64)})
}

// compareAndDelete is the usual release of a simple Redis lock.
var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func onRedis(lock func(ctx context.Context, rdb *redis.Client, name string, opt options) (acquire, release step)) func(string, options) (*client, error) {
	return func(addr string, opt options) (*client, error) {
		rdb := newRedis(addr, opt)
		return &client{
			lock:  func(ctx context.Context, name string) hold { return between(lock(ctx, rdb, name, opt)) },
			close: func() { _ = rdb.Close() },
		}, nil
	}
}

// rawLock does not wait: a lock that is held is an error.
func rawLock(_ context.Context, rdb *redis.Client, name string, opt options) (acquire, release step) {
	return func(ctx context.Context) error {
			return rdb.SetArgs(ctx, name, "holder", redis.SetArgs{Mode: "NX", TTL: ttl(opt)}).Err()
		}, func(ctx context.Context) error {
			return compareAndDelete.Run(ctx, rdb, []string{name}, "holder").Err()
		}
}

// popAndPush has a list with one element for each lock. A holder that dies keeps the element.
func popAndPush(ctx context.Context, rdb *redis.Client, name string, _ options) (acquire, release step) {
	release = func(ctx context.Context) error { return rdb.RPush(ctx, name, "1").Err() }
	made, err := rdb.SetNX(ctx, name+":made", "1", 0).Result()
	if err == nil && made {
		err = release(ctx)
	}
	// go-redis does not interrupt a command when its context ends.
	context.AfterFunc(ctx, func() { _ = rdb.Close() })
	return func(ctx context.Context) error {
		if err != nil {
			return err
		}
		return rdb.BLPop(ctx, 0, name).Err()
	}, release
}

func obtain(_ context.Context, rdb *redis.Client, name string, opt options) (acquire, release step) {
	locker := redislock.New(rdb)
	every := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	var lock *redislock.Lock
	return func(ctx context.Context) (err error) {
		lock, err = locker.Obtain(ctx, name, ttl(opt), every)
		// Obtain waits for one TTL.
		for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			lock, err = locker.Obtain(ctx, name, ttl(opt), every)
		}
		return err
	}, func(ctx context.Context) error { return lock.Release(ctx) }
}

func redsyncMutex(_ context.Context, rdb *redis.Client, name string, opt options) (acquire, release step) {
	var more []redsync.Option
	if opt.ttl > 0 {
		more = append(more, redsync.WithExpiry(opt.ttl))
	}
	mutex := redsync.New(goredis.NewPool(rdb)).NewMutex(name, more...)
	return func(ctx context.Context) error {
			err := mutex.LockContext(ctx)
			// LockContext tries 32 times.
			var taken *redsync.ErrTaken
			for errors.As(err, &taken) && ctx.Err() == nil {
				err = mutex.LockContext(ctx)
			}
			return err
		}, func(ctx context.Context) error {
			_, err := mutex.UnlockContext(ctx)
			return err
		}
}

// onNoonlock connects to a Redis, or to a Sentinel or the nodes of a cluster.
func onNoonlock(replicas int, lock func(c *lockcore.Client, name string, opt options) (acquire, release step)) func(string, options) (*client, error) {
	return func(addr string, opt options) (*client, error) {
		to := &redis.UniversalOptions{Addrs: strings.Split(addr, ","), PoolSize: cmp.Or(opt.connections, 64)}
		if sentinel, ok := strings.CutPrefix(addr, "sentinel "); ok {
			to.MasterName, to.Addrs[0] = "bench", sentinel
		}
		c, err := lockcore.NewFromOptions(to, lockcore.Config{MinReplicas: replicas})
		return &client{
			lock:  func(_ context.Context, name string) hold { return between(lock(c, name, opt)) },
			close: func() { _ = c.Close(context.Background()) },
		}, err
	}
}

func mutex(c *lockcore.Client, name string, opt options) (acquire, release step) {
	m, err := c.Mutex(name, lockcore.LeaseConfig{TTL: opt.ttl})
	var lease *lockcore.Lease
	return func(ctx context.Context) error {
		if err == nil {
			lease, err = m.Lock(ctx)
		}
		return err
	}, func(ctx context.Context) error { return lease.Unlock(ctx) }
}

func slot(c *lockcore.Client, name string, opt options) (acquire, release step) {
	s, err := c.Semaphore(name, 8, lockcore.LeaseConfig{TTL: opt.ttl})
	var lease *lockcore.Lease
	return func(ctx context.Context) error {
		if err == nil {
			lease, err = s.Acquire(ctx)
		}
		return err
	}, func(ctx context.Context) error { return lease.Unlock(ctx) }
}

// campaign has an elector for each campaign: one that has led for less than its RetryPeriod would
// pause before the next one.
func campaign(c *lockcore.Client, name string, opt options) (acquire, release step) {
	var le *election.LeaderElector
	var ended chan error
	return func(ctx context.Context) (err error) {
		leads := make(chan struct{}, 1)
		le, err = election.NewLeaderElector(c, name, election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				leads <- struct{}{}
				<-ctx.Done()
			},
			OnStoppedLeading: func() {},
		}, election.Config{LeaseDuration: opt.ttl, Once: true})
		if err != nil {
			return err
		}
		ended = make(chan error, 1)
		go func() { ended <- le.Run(ctx) }()
		select {
		case <-leads:
			return nil
		case err := <-ended:
			return errors.Join(err, ctx.Err())
		}
	}, func(ctx context.Context) error { return errors.Join(le.Resign(ctx), <-ended) }
}

// onLocker has rueidislock. If a request takes longer than TryNextAfter, the locker deletes its own
// key and waits, but is not notified of that. So with the default of 20 ms, which the row of stalls
// uses, a busy machine leaves goroutines that wait for ever.
func onLocker(tryNextAfter time.Duration) func(string, options) (*client, error) {
	return func(addr string, opt options) (*client, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: opt.ttl, TryNextAfter: tryNextAfter,
			KeyMajority: 1, NoLoopTracking: true,
		})
		if err != nil {
			return nil, err
		}
		return &client{
			lock: func(_ context.Context, name string) hold {
				var release context.CancelFunc
				return between(func(ctx context.Context) (err error) {
					_, release, err = locker.WithContext(ctx, name)
					return err
				}, func(context.Context) error {
					release()
					return nil
				})
			},
			close: locker.Close,
		}, nil
	}
}

// onEtcd has a session for each lock, since locks of one session do not exclude each other.
func onEtcd(lock func(*concurrency.Session, string) (acquire, release step)) func(string, options) (*client, error) {
	return func(addr string, opt options) (*client, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return &client{
			lock: func(_ context.Context, name string) hold {
				session, err := concurrency.NewSession(c, concurrency.WithTTL(int(opt.ttl/time.Second))) // 0: the default
				if err != nil {
					return func(context.Context, func()) error { return err }
				}
				return between(lock(session, "/"+name+"/"))
			},
			close: func() { _ = c.Close() },
		}, nil
	}
}

func mutexOf(session *concurrency.Session, prefix string) (acquire, release step) {
	m := concurrency.NewMutex(session, prefix)
	return m.Lock, m.Unlock
}

func electionOf(session *concurrency.Session, prefix string) (acquire, release step) {
	e := concurrency.NewElection(session, prefix)
	return func(ctx context.Context) error { return e.Campaign(ctx, "candidate") }, e.Resign
}

// ttl is the TTL for libraries without a default.
func ttl(opt options) time.Duration { return cmp.Or(opt.ttl, 10*time.Second) }
