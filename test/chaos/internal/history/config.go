package history

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

// A Config is the argument of a worker, as JSON, and what a judge has to know of a run.
type Config struct {
	Process     string            // its name, as w2.1
	Folder      string            // of the history
	Library     string            // a peer, whose mutex is used; empty: noonlock
	Kinds       []string          // of locks, all used at once
	URLs        []string          // of one deployment, or of each server of a quorum
	Via         map[string]string // address of each server -> address of its proxy
	Resource    string            // address
	Database    string            // DSN of MySQL, for jobs
	Seed        uint64
	TTL         time.Duration
	LockDelay   time.Duration
	MinReplicas int
	Slots       int           // of the semaphore
	Parts       int           // number of partitions
	Every       time.Duration // between two ticks
	Holds       int           // one lease in so many is held for several TTLs
	Slow        time.Duration // at most, between the check of a lease and its write
	Peers       bool          // libraries are compared: waiters may take one TTL longer
	Rate        float64       // of the clock of leases; 0: 1
	Epoch       int64         // CLOCK_BOOTTIME of the Unix epoch, in ns
}

// Quorum reports whether locks are on several servers.
func (c *Config) Quorum() bool { return len(c.URLs) > 1 }

// Dial connects to a server through its proxy.
func (c *Config) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, cmp.Or(c.Via[address], address))
}

// Connect returns a Client whose connections go through the proxies.
func (c *Config) Connect(cfg lockcore.Config) (*lockcore.Client, error) {
	cfg.LockDelay, cfg.MinReplicas = c.LockDelay, c.MinReplicas
	if c.Quorum() {
		var servers []redis.UniversalClient
		for _, url := range c.URLs {
			options, err := redis.ParseURL(url)
			if err != nil {
				return nil, err
			}
			options.Dialer = c.Dial
			servers = append(servers, redis.NewClient(options))
		}
		return lockcore.NewQuorum(servers, lockcore.QuorumConfig{Config: cfg, MaxTTL: c.TTL})
	}
	options, err := redisurl.Parse(c.URLs[0])
	if err != nil {
		return nil, err
	}
	options.Dialer = c.Dial
	return lockcore.NewFromOptions(options, cfg)
}
