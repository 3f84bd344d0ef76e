package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/wire"
)

// New returns a Client for the server or cluster in the options of rdb. It sends nothing. The
// error is a *noonlock.ConfigError, or wraps an error of Config.Registerer.
//
// A test passes a clock of elapsed time, see lease.NewClock. nil is the system's clock.
func New(rdb redis.UniversalClient, cfg Config, clock func() time.Duration) (*Client, error) {
	target, err := targetOf("rdb", rdb)
	return newSingle(cfg, clock, target, err)
}

// NewFromOptions is New with options, which may also name Sentinels.
func NewFromOptions(opts *redis.UniversalOptions, cfg Config, clock func() time.Duration) (*Client, error) {
	target, err := targetOfOptions(opts)
	return newSingle(cfg, clock, target, err)
}

func newSingle(cfg Config, clock func() time.Duration, t target, err error) (c *Client, _ error) {
	if err == nil {
		c, err = newClient(cfg, clock, t)
	}
	if err == nil {
		c.start(singleTopology{c}, t.connect(c.wireConfig()))
	}
	return c, err
}

// newClient returns a Client that start must complete. t is one of its servers.
func newClient(cfg Config, clock func() time.Duration, t target) (*Client, error) {
	scripts, err := OwnScripts()
	if err != nil {
		return nil, err
	}
	prefix := cmp.Or(cfg.Prefix, "noonlock")
	c := &Client{
		keys:    keyring{prefix, t.seeds != nil, strconv.Itoa(t.DB), prefix + ":ch:"},
		scripts: scripts,

		registry: registry.Set{Registerer: cfg.Registerer, Sum: cfg.SumMetrics},
		identity: cmp.Or(cfg.Identity, defaultIdentity()),
		process:  rand.Text(),

		tokenRetention: cmp.Or(cfg.TokenRetention, 2*time.Hour),
		lockDelay:      cfg.LockDelay,
		minReplicas:    cfg.MinReplicas,
		sentinels:      t.sentinels,
		servers:        []Server{{Options: t.Options}},

		unwantedGrants: make(chan struct{}, 16),
		closing:        make(chan struct{}),
		waiting:        map[uint64]*Attempt{},
		leases:         map[uint64]*Lease{},
		pendingTombs:   map[uint64]struct{}{},
		checks:         map[string]*grantCheck{},
		logged:         map[string]time.Duration{},
		owners:         owners{},
	}
	err = errors.Join(CheckName("Config.Prefix", prefix), CheckIdentity("Config.Identity", c.identity))
	switch d := c.lockDelay; {
	case err != nil:
		return nil, err
	case c.tokenRetention < time.Minute:
		return nil, Refuse("Config.TokenRetention", "0 (2h) or at least 1m", cfg.TokenRetention)
	case d != 0 && (d < minTTL || d > maxTTL || d%time.Millisecond != 0):
		return nil, Refuse("Config.LockDelay", "0 (no delay) or whole milliseconds from 100ms to 24h", d)
	case c.minReplicas < 0:
		return nil, Refuse("Config.MinReplicas", "0 or positive", c.minReplicas)
	}
	if c.metrics, err = newMetrics(c.Metrics()); err != nil {
		return nil, err
	}
	if c.logQueue, err = logqueue.New(cfg.Logger, cfg.Registerer); err != nil {
		return nil, fmt.Errorf("lockcore: Config.Registerer: %w", err)
	}
	c.log = c.logQueue.Logger()
	c.clock = lease.NewClock(clock)
	c.idle = sync.NewCond(&c.mu)
	c.waits = c.Reports("locks", "lock request failed; retrying", "the server answers again")
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

func (c *Client) start(t topology, w wire.Wire) {
	c.topology, c.wire = t, w
	c.keeper = lease.NewKeeper(c.clock, renewer{c}, ErrLeaseExpired)
}

func (c *Client) wireConfig() wire.Config {
	cfg := wire.Config{
		Replicas: c.minReplicas,
		Channel:  func(name string) string { return c.keys.channel(name, "ch:"+c.process) },
		Sharded:  c.keys.sharded,
		Logger:   c.log,
		Now:      c.clock.Ticks,
		Failed:   c.metrics.countFailure,
		Message:  c.receive,
		Holds:    c.holds,
		Moved: func() {
			c.keeper.RenewMoved(func(*lease.Lease) bool { return true })
			c.wakeAll("")
		},
		Relocated: func(moved func(name string) bool) {
			c.keeper.RenewMoved(func(l *lease.Lease) bool { return moved(l.Holder().(holder).a.keys.name) })
		},
		Missed: c.wakeAll,
	}
	if c.lockDelay > 0 {
		cfg.History = c.history
	}
	return cfg
}

// holds reports whether the Client has leases or background tasks.
func (c *Client) holds() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks+len(c.leases) > 0
}

func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || input.Fault(host, 180, false) != "" {
		host = "unknown-host"
	}
	return host + "-" + strings.ToLower(rand.Text()[:8])
}

// Close ends all leases with ErrClosed and releases their locks. lockcore.Client.Close describes it.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.closed = true
	c.mu.Unlock()
	close(c.closing)
	c.releaseAll()

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

	if c.quorum != nil {
		c.quorum.Wire.Drain(ctx) // waits for the releases at the servers that answer last
	}
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

// singleTopology is the topology of New: one server decides about a name.
type singleTopology struct{ c *Client }

func (singleTopology) kind(record, channel string) Kind { return mutexKind{record, channel} }

func (singleTopology) refusal(Kind, *leaseTerms) error { return nil }

func (singleTopology) ready(_ context.Context, within time.Duration) (time.Duration, error) {
	return within, nil
}

func (singleTopology) confirm(_ context.Context, _ *Attempt, r acquireReply, _ time.Duration) (acquireReply, error) {
	return r, nil
}

// lossReason waits for the server for at most 5 % of the TTL, or 100 ms if that is less.
func (t singleTopology) lossReason(ctx context.Context, a *Attempt) error {
	within := min(a.terms.ttl/20, 100*time.Millisecond)
	forced := a.keys.key("forced")
	answer, err := t.c.wire.Send(ctx, a.keys.name, wire.Command("hget", forced, a.value).On(forced), within)
	by, reason, found := strings.Cut(wire.Text(answer), "\n")
	if err != nil || !found {
		return ErrLeaseLost
	}
	return &ForcedError{By: by, Reason: reason}
}
