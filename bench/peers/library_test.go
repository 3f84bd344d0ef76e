package peers_test

import (
	"context"
	"errors"
	"fmt"
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
	key  func(name string) string // of a held lock on Redis; nil for etcd
}

type options struct {
	ttl         time.Duration // 0: the library's default
	connections int           // of a pool; 0: 64
}

// A client is what one process has of a library.
type client struct {
	lock  func(ctx context.Context, name string) (hold, error)
	close func()
}

// A hold waits for a lock, calls work while it is held, and releases it.
type hold func(ctx context.Context, work func()) error

func same(name string) string { return name }

var (
	raw         = library{"raw go-redis", openRaw, same}
	blpop       = library{"BLPOP", openBLPop, same}
	noonlock    = library{"noonlock", openNoonlock, func(name string) string { return "noonlock:{" + name + "}:lock" }}
	elector     = library{"noonlock, elector", openElector, func(name string) string { return "noonlock:{election/" + name + "}:lock" }}
	redisLock   = library{"redislock", openRedisLock, same}
	redSync     = library{"redsync", openRedSync, same}
	rueidisLock = library{"rueidislock", openRueidisLock, func(name string) string { return "rueidislock:0:" + name }}
	rueidis20ms = library{"rueidislock, TryNextAfter 20 ms", openRueidisLock20ms, rueidisLock.key}
	etcdMutex   = library{"etcd", openEtcd(mutexOf), nil}
	etcdElector = library{"etcd, elector", openEtcd(electionOf), nil}
)

func byName(name string) (library, error) {
	for _, l := range []library{raw, blpop, noonlock, elector, redisLock, redSync, rueidisLock, etcdMutex, etcdElector} {
		if l.name == name {
			return l, nil
		}
	}
	return library{}, fmt.Errorf("there is no library %q", name)
}

func newRedis(addr string, opt options) *redis.Client {
	connections := opt.connections
	if connections == 0 {
		connections = 64
	}
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: connections})
}

// compareAndDelete is the usual release of a simple Redis lock.
var compareAndDelete = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// openRaw does not wait: a lock that is held is an error.
func openRaw(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			return func(ctx context.Context, work func()) error {
				if err := rdb.SetArgs(ctx, name, "holder", redis.SetArgs{Mode: "NX", TTL: ttl(opt)}).Err(); err != nil {
					return err
				}
				work()
				return compareAndDelete.Run(ctx, rdb, []string{name}, "holder").Err()
			}, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// openBLPop has a list with one element for each lock. A holder that dies keeps the element.
func openBLPop(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	return &client{
		lock: func(ctx context.Context, name string) (hold, error) {
			made, err := rdb.SetNX(ctx, name+":made", "1", 0).Result()
			if err == nil && made {
				err = rdb.RPush(ctx, name, "1").Err()
			}
			// go-redis does not interrupt a command when its context ends.
			context.AfterFunc(ctx, func() { _ = rdb.Close() })
			return func(ctx context.Context, work func()) error {
				if err := rdb.BLPop(ctx, 0, name).Err(); err != nil {
					return err
				}
				work()
				return rdb.RPush(ctx, name, "1").Err()
			}, err
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

func openNoonlock(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	c, err := lockcore.New(rdb, lockcore.Config{})
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			m, err := c.Mutex(name, lockcore.LeaseConfig{TTL: opt.ttl})
			return func(ctx context.Context, work func()) error {
				lease, err := m.Lock(ctx)
				if err != nil {
					return err
				}
				work()
				return lease.Unlock(ctx)
			}, err
		},
		close: func() {
			_ = c.Close(context.Background())
			_ = rdb.Close()
		},
	}, err
}

// openElector has an elector for each campaign: one that has led for less than its RetryPeriod
// would pause before the next one.
func openElector(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	c, err := lockcore.New(rdb, lockcore.Config{})
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			return func(ctx context.Context, work func()) error {
				leads := make(chan struct{}, 1)
				le, err := election.NewLeaderElector(c, name, election.Callbacks{
					OnStartedLeading: func(ctx context.Context) {
						leads <- struct{}{}
						<-ctx.Done()
					},
					OnStoppedLeading: func() {},
				}, election.Config{LeaseDuration: opt.ttl, Once: true})
				if err != nil {
					return err
				}
				ended := make(chan error, 1)
				go func() { ended <- le.Run(ctx) }()
				select {
				case <-leads:
				case err := <-ended:
					return errors.Join(err, ctx.Err())
				}
				work()
				return errors.Join(le.Resign(ctx), <-ended)
			}, nil
		},
		close: func() {
			_ = c.Close(context.Background())
			_ = rdb.Close()
		},
	}, err
}

func openRedisLock(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	locker := redislock.New(rdb)
	every := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			return func(ctx context.Context, work func()) error {
				lock, err := locker.Obtain(ctx, name, ttl(opt), every)
				// Obtain waits for one TTL.
				for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					lock, err = locker.Obtain(ctx, name, ttl(opt), every)
				}
				if err != nil {
					return err
				}
				work()
				return lock.Release(ctx)
			}, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

func openRedSync(addr string, opt options) (*client, error) {
	rdb := newRedis(addr, opt)
	rs := redsync.New(goredis.NewPool(rdb))
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			var more []redsync.Option
			if opt.ttl > 0 {
				more = append(more, redsync.WithExpiry(opt.ttl))
			}
			mutex := rs.NewMutex(name, more...)
			return func(ctx context.Context, work func()) error {
				err := mutex.LockContext(ctx)
				// LockContext tries 32 times.
				var taken *redsync.ErrTaken
				for errors.As(err, &taken) && ctx.Err() == nil {
					err = mutex.LockContext(ctx)
				}
				if err != nil {
					return err
				}
				work()
				_, err = mutex.UnlockContext(ctx)
				return err
			}, nil
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// openRueidisLock gives each request a second. If a request takes longer than TryNextAfter, the
// locker deletes its own key and waits, but is not notified of that. So with the default of
// 20 ms, which the row of stalls uses, a busy machine leaves goroutines that wait for ever.
func openRueidisLock(addr string, opt options) (*client, error) {
	return openLocker(addr, rueidislock.LockerOption{KeyValidity: opt.ttl, TryNextAfter: time.Second})
}

func openRueidisLock20ms(addr string, opt options) (*client, error) {
	return openLocker(addr, rueidislock.LockerOption{KeyValidity: opt.ttl})
}

func openLocker(addr string, opt rueidislock.LockerOption) (*client, error) {
	opt.ClientOption = rueidis.ClientOption{InitAddress: []string{addr}}
	opt.KeyMajority, opt.NoLoopTracking = 1, true
	locker, err := rueidislock.NewLocker(opt)
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(_ context.Context, name string) (hold, error) {
			return func(ctx context.Context, work func()) error {
				_, release, err := locker.WithContext(ctx, name)
				if err != nil {
					return err
				}
				work()
				release()
				return nil
			}, nil
		},
		close: locker.Close,
	}, nil
}

// openEtcd has a session for each lock, since locks of one session do not exclude each other.
func openEtcd(lock func(*concurrency.Session, string) hold) func(string, options) (*client, error) {
	return func(addr string, opt options) (*client, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return &client{
			lock: func(_ context.Context, name string) (hold, error) {
				var more []concurrency.SessionOption
				if opt.ttl > 0 {
					more = append(more, concurrency.WithTTL(int(opt.ttl/time.Second)))
				}
				session, err := concurrency.NewSession(c, more...)
				if err != nil {
					return nil, err
				}
				return lock(session, "/"+name+"/"), nil
			},
			close: func() { _ = c.Close() },
		}, nil
	}
}

func mutexOf(session *concurrency.Session, prefix string) hold {
	m := concurrency.NewMutex(session, prefix)
	return func(ctx context.Context, work func()) error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		work()
		return m.Unlock(ctx)
	}
}

func electionOf(session *concurrency.Session, prefix string) hold {
	e := concurrency.NewElection(session, prefix)
	return func(ctx context.Context, work func()) error {
		if err := e.Campaign(ctx, "candidate"); err != nil {
			return err
		}
		work()
		return e.Resign(ctx)
	}
}

// ttl is the TTL for libraries without a default.
func ttl(opt options) time.Duration {
	if opt.ttl > 0 {
		return opt.ttl
	}
	return 10 * time.Second
}
