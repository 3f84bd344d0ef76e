package lockcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Client holds leases on one Redis server. However many locks it has, it uses
// a few connections of its own, one of them a subscription, and a fixed number
// of goroutines. It is safe for concurrent use; one per process is enough.
type Client struct {
	keys     keyring
	scripts  *scripts
	clock    *lease.Clock
	lines    *logqueue.Queue
	log      logr.Logger // of lines
	metrics  *metrics
	identity string
	process  string // secret: who knows it can speak for this Client

	tokenRetention time.Duration

	attempts atomic.Uint64
	wire     wire.Wire
	keeper   *lease.Keeper
	strays   chan struct{} // bounds the answers to grants nobody wants

	ctx     context.Context // of work behind; ends with Close
	cancel  context.CancelFunc
	closing chan struct{}

	mu      sync.Mutex
	idle    *sync.Cond
	closed  bool
	ended   bool
	tasks   int
	waiting map[uint64]*attempt
	leases  map[uint64]*Lease

	// unburied are attempts that were given up while an acquire was unanswered, and
	// whose tombstone has not been written yet, or never will.
	unburied map[uint64]struct{}

	shared map[any]any // of the packages above, see nameEngine.Shared

	owners      owners
	ownersSwept int // how many there were after the last sweep
}

// New makes a Client. It connects when it is first used, with connections of its
// own made from rdb's options, so that a pool that the application has used up
// does not stop renewals; rdb itself is not used further, and its hooks and
// limiter are not taken over.
//
// rdb is a *redis.Client. *redis.Ring and *redis.AutoPipeliner are refused, as is
// *redis.ClusterClient for now. The error is a *ConfigError.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	target, err := wire.TargetOf(rdb)
	if unfit, ok := errors.AsType[*wire.UnsupportedError](err); ok {
		return nil, &ConfigError{Field: "rdb", Value: unfit.Given, Rule: unfit.Want}
	} else if err != nil {
		return nil, err
	}
	c := &Client{
		keys:     keyring{cmp.Or(cfg.Prefix, defaultPrefix)},
		identity: cmp.Or(cfg.Identity, defaultIdentity()),
		process:  rand.Text(),

		tokenRetention: cmp.Or(cfg.TokenRetention, defaultTokenRetention),

		strays:   make(chan struct{}, 16),
		closing:  make(chan struct{}),
		waiting:  map[uint64]*attempt{},
		leases:   map[uint64]*Lease{},
		unburied: map[uint64]struct{}{},
		owners:   owners{},
	}
	err = errors.Join(checkName("Config.Prefix", c.keys.prefix), checkIdentity("Config.Identity", c.identity))
	if err == nil && c.tokenRetention < time.Minute {
		err = refuse("Config.TokenRetention", "0 (2h) or at least 1m", "%s", cfg.TokenRetention)
	}
	if err == nil {
		c.scripts, err = ownScripts()
	}
	if err == nil {
		c.metrics, err = newMetrics(cfg.Registerer)
	}
	if err == nil {
		c.lines, err = logqueue.New(cfg.Logger, cfg.Registerer)
	}
	if err != nil {
		return nil, err
	}
	c.log = c.lines.Logger()
	var slow sync.Once
	c.clock = lease.NewClock(cfg.Clock, func(err error) {
		slow.Do(func() {
			c.log.Error(err, "Config.Clock cannot be relied on; leases go by Go's monotonic clock meanwhile")
		})
	})
	c.idle = sync.NewCond(&c.mu)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.wire = target.Connect(wire.Config{
		Channel: c.keys.channels() + c.process,
		Logger:  c.log,
		Now:     c.clock.Ticks,
		Failed:  c.metrics.failed,
		Message: c.receive,
		Missed:  c.wakeAll,
		Silence: c.silence,
		Width:   lease.Connections,
	})
	c.keeper = lease.NewKeeper(lease.Config{Clock: c.clock, Renewer: &renewer{c, c.wire.Renewals("")}, Expired: ErrLeaseExpired, MaxHeld: errors.Join(ErrLeaseExpired, ErrMaxHold)})
	return c, nil
}

func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || textFault(host, 180, false) != "" {
		host = "unknown-host"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}

// Identity is what others see as the holder of this Client's locks.
func (c *Client) Identity() string { return c.identity }

// Elapsed is the time since the Client was made, by the clock that its leases go by: it
// also counts while the process is paused or the machine is suspended. It never goes
// back.
func (c *Client) Elapsed() time.Duration { return c.clock.Now() }

// Close ends all leases of the Client (their contexts are done with ErrClosed),
// gives them back, makes waiters return ErrClosed, and ends every goroutine and
// connection. It does not wait for the work done under the leases: end that
// first. If ctx ends before everything was given back, what is left ends with
// its TTL, and ctx's error is returned. A second Close returns ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return refuse("ctx", "a context", "%s", "nil")
	}
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
	c.mu.Unlock()
	close(c.closing)
	for _, l := range held {
		if l.end(ErrClosed) {
			c.background(func(ctx context.Context) { _, _ = c.giveBack(ctx, l, l.a.terms.ttl, false) })
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
	c.ended = true
	c.mu.Unlock()
	wake()

	c.cancel()
	c.wire.Close()
	c.keeper.Close()
	c.mu.Lock()
	for c.tasks > 0 {
		c.idle.Wait()
	}
	c.mu.Unlock()
	c.lines.Flush(ctx)
	if left > 0 {
		return errors.Join(ctx.Err(), errors.New("lockcore: close: not everything was given back; it ends with its TTL"))
	}
	return nil
}

// enlist makes an attempt known; false if the Client is closed.
func (c *Client) enlist(a *attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.waiting[a.number] = a
	return true
}

// forget ends an attempt and takes back what may stand of it at the server.
func (c *Client) forget(a *attempt) {
	if a.owes.Load() {
		// Before it is struck off: Close must not find nothing to wait for.
		c.background(func(ctx context.Context) { c.takeBack(ctx, a) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, a.number)
	c.idle.Broadcast()
}

// takeBack leaves until that is answered or pointless, with a tombstone if an acquire
// of the attempt was not answered and may still arrive.
func (c *Client) takeBack(ctx context.Context, a *attempt) {
	retry := wire.NewRetry(a.terms.timeout(), max(a.terms.ttl, 10*time.Second), nil)
	err := retry.Do(ctx, wire.MayRetryLater, func() error {
		_, err := a.leave(ctx, retry.Timeout())
		return err
	})
	if err != nil {
		c.log.Info("abandoned attempt not taken back; it ends with its TTL", "name", a.keys.name, "err", err, "ttl", a.terms.ttl)
	}
}

// hold makes the lease of an attempt that was granted.
func (c *Client) hold(ctx context.Context, a *attempt, token uint64, t0 time.Duration) (*Lease, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.forget(a)
		return nil, ErrClosed
	}
	l := c.newLease(ctx, a, token, t0)
	delete(c.waiting, a.number)
	c.leases[a.number] = l
	c.owners.begin(l)
	if len(c.owners) > 1000+2*c.ownersSwept {
		c.owners.sweep(c.clock.Now())
		c.ownersSwept = len(c.owners)
	}
	c.mu.Unlock()
	c.metrics.kind(a.kind.name()).held.Inc()
	return l, nil
}

// noteLoss is called once for a lease that ended against its holder's will. A
// lock that has expired here is left to its TTL at the server: that time is the
// work's, to stop in.
func (c *Client) noteLoss(l *Lease, cause error) {
	c.metrics.ended(cause)
	about := []any{"name", l.a.keys.name, "kind", l.a.kind.name(), "token", l.token}
	if errors.Is(cause, ErrMaxHold) {
		c.log.Info("lease ended by MaxHold", about...)
	} else {
		c.log.Error(cause, "lease lost", about...)
	}
	if errors.Is(cause, ErrLeaseLost) && l.a.open.Load() {
		// An acquire that is still under way must not take the lock anew.
		c.background(func(ctx context.Context) { c.takeBack(ctx, l.a) })
	}
	c.dismiss(l)
}

// newRetry makes a retry that Close ends.
func (c *Client) newRetry(each, within time.Duration) *wire.Retry {
	return wire.NewRetry(each, within, c.closing)
}

// request sends a request until it is answered, ctx ends, or within is over.
func (c *Client) request(ctx context.Context, req wire.Request, each, within time.Duration) (any, error) {
	return c.newRetry(each, within).Send(ctx, c.wire, req, wire.MayRetry)
}

// background runs a task that Close waits for; false if Close is done waiting.
func (c *Client) background(task func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
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
