package lockcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Client acquires and renews leases on a Redis server, or on all primaries of a Redis
// Cluster. It opens a few connections of its own to each server, one of them for a
// subscription. The number of its connections and permanent goroutines does not depend on the
// number of locks. A Client is safe for concurrent use, and one per process is enough.
type Client struct {
	keys     keyring
	scripts  *scripts
	clock    *lease.Clock
	logQueue *logqueue.Queue
	log      logr.Logger // writes to logQueue
	metrics  *metrics
	identity string
	process  string // secret: with it, other clients could forge this Client's requests

	tokenRetention, lockDelay time.Duration

	attempts       atomic.Uint64
	wire           wire.Wire
	topology       topology
	keeper         *lease.Keeper
	unwantedGrants chan struct{} // limits concurrent releases of grants without a waiter

	ctx     context.Context // of background tasks; Close cancels it
	cancel  context.CancelFunc
	closing chan struct{}

	mu          sync.Mutex
	idle        *sync.Cond
	closed      bool
	noMoreTasks bool
	tasks       int
	waiting     map[uint64]*attempt
	leases      map[uint64]*Lease

	// pendingTombs has the abandoned attempts that need a tombstone, because an acquire was
	// not answered, until it is known that the tombstone was written.
	pendingTombs map[uint64]struct{}

	checks map[string]*grantCheck // by name, see checkLater

	shared map[any]any // see nameEngine.Shared

	owners      owners
	ownersSwept int // how many there were after the last sweep
}

// New returns a Client for the server or cluster that the options of rdb name. The Client
// connects at its first use, with connections of its own, so that an exhausted pool of the
// application does not stop renewals. It copies the options of rdb, but not its hooks and
// limiter, and does not use rdb afterwards. There is one exception: a client of
// redis.NewFailoverClient must stay open until Close, because the Client uses its connections
// to the Sentinels.
//
// rdb must be a *redis.Client or a *redis.ClusterClient. Other types are refused, and so is a
// ClusterClient that reads from replicas. The error is a *ConfigError, or wraps an error of
// Config.Registerer.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	target, err := wire.TargetOf(rdb)
	if unfit, ok := errors.AsType[*wire.UnsupportedError](err); ok {
		return nil, &ConfigError{Field: "rdb", Value: unfit.Given, Rule: unfit.Want}
	} else if err != nil {
		return nil, err
	}
	return newClient(cfg, target.Sharded(), func(_ *Client, config wire.Config) wire.Wire { return target.Connect(config) })
}

// newClient returns a Client with the Wire that connect returns.
func newClient(cfg Config, sharded bool, connect func(*Client, wire.Config) wire.Wire) (*Client, error) {
	c := &Client{
		keys:     keyring{cmp.Or(cfg.Prefix, defaultPrefix), sharded},
		identity: cmp.Or(cfg.Identity, defaultIdentity()),
		process:  rand.Text(),

		tokenRetention: cmp.Or(cfg.TokenRetention, defaultTokenRetention),
		lockDelay:      cfg.LockDelay,

		unwantedGrants: make(chan struct{}, 16),
		closing:        make(chan struct{}),
		waiting:        map[uint64]*attempt{},
		leases:         map[uint64]*Lease{},
		pendingTombs:   map[uint64]struct{}{},
		checks:         map[string]*grantCheck{},
		owners:         owners{},
	}
	c.topology = alone{c}
	err := errors.Join(checkName("Config.Prefix", c.keys.prefix), checkIdentity("Config.Identity", c.identity))
	if err == nil && c.tokenRetention < time.Minute {
		err = refuse("Config.TokenRetention", "0 (2h) or at least 1m", cfg.TokenRetention)
	}
	if d := c.lockDelay; err == nil && d != 0 && (d < minTTL || d > maxTTL || d%time.Millisecond != 0) {
		err = refuse("Config.LockDelay", "0 (no delay) or whole milliseconds from 100ms to 24h", d)
	}
	if err == nil {
		c.scripts, err = ownScripts()
	}
	if err == nil {
		c.metrics, err = newMetrics(cfg.Registerer)
	}
	if err == nil {
		if c.logQueue, err = logqueue.New(cfg.Logger, cfg.Registerer); err != nil {
			err = fmt.Errorf("lockcore: Config.Registerer: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	c.log = c.logQueue.Logger()
	c.clock = lease.NewClock(cfg.Clock)
	c.idle = sync.NewCond(&c.mu)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.wire = connect(c, c.wireConfig())
	c.keeper = lease.NewKeeper(lease.Config{Clock: c.clock, Renewer: renewer{c}, Expired: ErrLeaseExpired, MaxHeld: errors.Join(ErrLeaseExpired, ErrMaxHold)})
	return c, nil
}

// wireConfig configures the Wire of the Client.
func (c *Client) wireConfig() wire.Config {
	var delay *wire.Delay
	if c.lockDelay > 0 {
		delay = &wire.Delay{
			For: c.lockDelay,
			Check: func(tag, known string, reached int64) wire.Request {
				return c.scripts.lockHistory.Call(wire.Keys(c.keys.history(tag)), known, reached)
			},
			Began: func(server string, left time.Duration, reason string) {
				c.metrics.delays.Inc()
				c.log.Info("grants delayed, because the server may have lost data", "server", server, "delay", left.String(), "reason", reason)
			},
		}
	}
	return wire.Config{
		Delay:   delay,
		Channel: func(name string) string { return c.keys.channel(name, "ch:"+c.process) },
		Sharded: c.keys.sharded,
		Logger:  c.log,
		Now:     c.clock.Ticks,
		Failed:  c.metrics.countFailure,
		Message: c.receive,
		InUse:   c.inUse,
		Moved: func() {
			c.keeper.RenewAll()
			c.wakeAll()
		},
		Relocated: func(how func(name string) (moved, copied bool)) {
			c.keeper.RenewMoved(func(l *lease.Lease) (moved, copied bool) {
				return how(l.Holder().(holder).a.keys.name)
			})
		},
		Missed:  c.wakeAll,
		Silence: c.silence,
		Width:   lease.MaxInFlight,
	}
}

// inUse reports whether a lease is held, or waited for, or released.
func (c *Client) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks+len(c.waiting)+len(c.leases) > 0
}

func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || input.Fault(host, 180, false) != "" {
		host = "unknown-host"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}

// Identity returns the name that HeldError and Inspect show as the holder of this Client's
// locks.
func (c *Client) Identity() string { return c.identity }

// Elapsed returns the time since the Client was created, measured by the clock of its
// leases. It never decreases. It includes the time for which the process was paused or the
// machine was suspended, see Config.Clock.
func (c *Client) Elapsed() time.Duration { return c.clock.Now() }

// Close ends all leases of the Client with ErrClosed and releases their locks. Waiting
// calls return ErrClosed. Then Close ends all goroutines and connections of the Client.
//
// Close does not wait for the work that is done under the leases: stop that work first.
// If ctx ends before all locks are released, Close returns ctx's error, and the server
// frees the remaining locks when their TTLs expire. For each name that the Client
// released less than a second ago, Close sends one more request, for at most a second. With it,
// other processes notice if the next holder is frozen. A Client of a quorum also waits for the answers of the
// slower servers to the last releases. A second Close returns ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	ctx = input.Context(ctx)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	held := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		held = append(held, l)
	}
	checks := c.checks
	c.checks = nil
	c.mu.Unlock()
	close(c.closing)
	for _, check := range checks {
		if check.timer.Stop() {
			check.passOn(c)
		}
	}
	for _, l := range held {
		if l.end(ErrClosed) {
			c.background(func(ctx context.Context) { _, _ = c.retryRelease(ctx, l, l.a.terms.ttl, false) })
		}
	}

	wake := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle.Broadcast()
	})
	c.mu.Lock()
	for ctx.Err() == nil && c.tasks+len(c.waiting)+len(c.leases) > 0 {
		c.idle.Wait()
	}
	left := c.tasks + len(c.waiting) + len(c.leases)
	c.noMoreTasks = true
	c.mu.Unlock()
	wake()

	c.topology.drain(ctx)
	c.cancel()
	c.wire.Close()
	c.keeper.Close()
	c.mu.Lock()
	for c.tasks > 0 {
		c.idle.Wait()
	}
	c.mu.Unlock()
	c.logQueue.Flush(ctx)
	if left > 0 {
		return errors.Join(ctx.Err(), errors.New("lockcore: close: not all locks were released; the rest expire with their TTL"))
	}
	return nil
}

// newRetry returns a Retry that Close ends.
func (c *Client) newRetry(each, within time.Duration) wire.Retry {
	return wire.NewRetry(each, within, c.closing)
}

// request sends a request and retries it until it is answered, ctx ends, or within has
// passed.
func (c *Client) request(ctx context.Context, name string, req wire.Request, each, within time.Duration) (any, error) {
	retry := c.newRetry(each, within)
	return retry.Send(input.Context(ctx), c.wire, name, req, wire.MayRetry)
}

// background runs a task that Close waits for. It returns false, and does not run the
// task, if Close no longer waits.
func (c *Client) background(task func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noMoreTasks {
		return false
	}
	c.tasks++
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.tasks--
			c.idle.Broadcast()
		}()
		task(c.ctx)
	}()
	return true
}
