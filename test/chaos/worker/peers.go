//go:build peers

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// peers are other libraries with mutexes, as a careful user has them: with the settings that their documentation
// advises, renewed, and with a deadline that counts from before the request where the library lets the user know.
var peers = map[string]func(w *worker, servers []*redis.Client) (acquire, error){
	"redislock":           onRedislock,
	"redsync":             onRedsync,
	"rueidislock":         onRueidislock,
	"SET NX":              textbook,
	"etcd":                onEtcd,
	"client-go":           func(w *worker, _ []*redis.Client) (acquire, error) { return onClientGo(w, false) },
	"client-go with Bind": func(w *worker, _ []*redis.Client) (acquire, error) { return onClientGo(w, true) },
}

const shared = "orders" // the lock of all workers

// peer uses a lock that all workers share, or a job, with another library.
func (w *worker) peer(ctx context.Context) error {
	var servers []*redis.Client
	for _, url := range w.URLs {
		if options, err := redis.ParseURL(url); err == nil { // etcd has another scheme
			options.Dialer = w.Dial
			servers = append(servers, redis.NewClient(options))
		}
	}
	if w.Library == "gocron" {
		return w.gocron(ctx, servers[0])
	}
	lock, err := peers[w.Library](w, servers)
	if err != nil {
		return err
	}
	w.cycle(ctx, history.Mutex, shared, busy, []way{{"", 100, true, lock}})
	return nil
}

// unlimited is a lease whose library does not tell until when it is valid.
func unlimited(token uint64, check func() error, unlock func(ctx context.Context) error) *lease {
	remaining := func() time.Duration {
		if check() != nil {
			return 0
		}
		return 1
	}
	return &lease{token, -1, check, remaining, unlock}
}

var errOver = errors.New("the lease is over")

// renewed renews a lease every third of its TTL, as its user has to. extend returns until when the lease is valid then,
// or errOver if it is lost.
func renewed(
	ctx context.Context, ttl time.Duration, until time.Time,
	extend func(ctx context.Context) (time.Time, error), release func(ctx context.Context) error,
) *lease {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewer sync.WaitGroup
	var end atomic.Pointer[time.Time] // an instant long ago if the lease is lost
	end.Store(&until)
	renewer.Go(func() {
		for next := ttl / 3; ; {
			if !retry.Sleep(ctx, next, nil) {
				return
			}
			limited, cancel := context.WithTimeout(ctx, ttl/3)
			until, err := extend(limited)
			cancel()
			next = ttl / 3
			switch {
			case errors.Is(err, errOver):
				end.Store(&time.Time{})
			case err == nil && !end.Load().IsZero():
				end.Store(&until)
			default:
				next = ttl / 20
			}
		}
	})
	remaining := func() time.Duration { return time.Until(*end.Load()) }
	check := func() error {
		if remaining() > 0 {
			return nil
		}
		return errOver
	}
	return &lease{0, -1, check, remaining, func(ctx context.Context) error {
		stop()
		renewer.Wait()
		return release(ctx)
	}}
}

// poll tries until a lock is free or ctx ends, with a pause that is random between two limits.
func poll(ctx context.Context, least, most time.Duration, try func() (*lease, error)) (*lease, error) {
	for {
		l, err := try()
		if err == nil || ctx.Err() != nil {
			return l, err
		}
		retry.Sleep(ctx, least+rand.N(most-least+1), nil)
	}
}

// onRedislock polls as in the README of redislock.
func onRedislock(w *worker, servers []*redis.Client) (acquire, error) {
	client := redislock.New(servers[0])
	return func(ctx context.Context) (*lease, error) {
		return poll(ctx, 100*time.Millisecond, 100*time.Millisecond, func() (*lease, error) {
			t0 := time.Now()
			l, err := client.Obtain(ctx, shared, w.TTL, nil)
			if err != nil {
				return nil, err
			}
			return renewed(ctx, w.TTL, t0.Add(w.TTL), func(ctx context.Context) (time.Time, error) {
				t0 := time.Now()
				err := l.Refresh(ctx, w.TTL, nil)
				if errors.Is(err, redislock.ErrNotObtained) {
					err = errOver
				}
				return t0.Add(w.TTL), err
			}, l.Release), nil
		})
	}, nil
}

// onRedsync polls as redsync does by default. So each try has its own random value.
func onRedsync(w *worker, servers []*redis.Client) (acquire, error) {
	var all []pools.Pool
	for _, s := range servers {
		all = append(all, goredis.NewPool(s))
	}
	locks := redsync.New(all...)
	return func(ctx context.Context) (*lease, error) {
		return poll(ctx, 50*time.Millisecond, 250*time.Millisecond, func() (*lease, error) {
			m := locks.NewMutex(shared, redsync.WithExpiry(w.TTL), redsync.WithTries(1))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return renewed(ctx, w.TTL, m.Until(), func(ctx context.Context) (time.Time, error) {
				_, err := m.ExtendContext(ctx)
				return m.Until(), err
			}, func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}), nil
		})
	}, nil
}

func onRueidislock(w *worker, servers []*redis.Client) (acquire, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		KeyValidity: w.TTL, ExtendInterval: w.TTL / 3, TryNextAfter: w.TTL / 3, KeyMajority: 1, NoLoopTracking: true,
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{servers[0].Options().Addr},
			DialCtxFn: func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return w.Dial(ctx, "tcp", address)
			},
		},
	})
	return func(ctx context.Context) (*lease, error) {
		// The context of the lease is derived from that of the call.
		asking, cancel := context.WithCancel(context.WithoutCancel(ctx))
		detach := context.AfterFunc(ctx, cancel)
		lead, release, err := locker.WithContext(asking, shared)
		if !detach() && err == nil {
			release()
			err = ctx.Err()
		}
		if err != nil {
			cancel()
			return nil, err
		}
		return unlimited(0, lead.Err, func(context.Context) error { release(); cancel(); return nil }), nil
	}, err
}

// textbook is SET NX PX, and a release that compares the value.
func textbook(w *worker, servers []*redis.Client) (acquire, error) {
	mine := redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)
	return func(ctx context.Context) (*lease, error) {
		return poll(ctx, 100*time.Millisecond, 100*time.Millisecond, func() (*lease, error) {
			value := strconv.FormatUint(rand.Uint64(), 36)
			if set, err := servers[0].SetNX(ctx, shared, value, w.TTL).Result(); err != nil || !set {
				return nil, errors.Join(errOver, err)
			}
			return unlimited(0, func() error { return nil }, func(ctx context.Context) error {
				return mine.Run(ctx, servers[0], []string{shared}, value).Err()
			}), nil
		})
	}, nil
}
