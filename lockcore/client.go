package lockcore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
)

// A Client acquires and renews leases on a Redis server, or on all primaries of a Redis
// Cluster. It opens three connections of its own to each server: for calls, renewals and
// messages. The number of its connections and permanent goroutines does not depend on the
// number of locks. A Client is safe for concurrent use, and one per process is enough.
type Client struct{ access }

type access = lock.Access

func (c *Client) room() *lock.Client { return lock.Of(&c.access) }

// opened wraps a Client of internal/lock, and passes an error on.
func opened(c *lock.Client, err error) (*Client, error) {
	if err != nil {
		return nil, err
	}
	client := new(Client)
	lock.Attach(client, c)
	return client, nil
}

// New returns a Client for the server or cluster of rdb, a *redis.Client or *redis.ClusterClient. It refuses a client
// of redis.NewFailoverClient, which hides its Sentinels: NewFromOptions takes their addresses. The Client copies the
// options of rdb, but not its hooks, and does not use rdb afterwards.
//
// The Client connects at its first use, with connections of its own, so that an exhausted pool of the application does
// not stop renewals. Of the options, it uses addresses, credentials, TLS, Dialer, DialTimeout, ClientName, DB,
// ConnMaxIdleTime and ConnMaxLifetime. Options that would change what a Client does are refused: OnConnect, Limiter,
// NewClient and ClusterSlots, and options that read from replicas. A Client ignores options for pools, buffers,
// retries, read and write timeouts, pipelines, client-side caches, routing policies, push and maintenance
// notifications, and CLIENT SETINFO. It speaks RESP 2, whatever Protocol is.
//
// The error is a *noonlock.ConfigError, or wraps an error of Config.Registerer.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	return opened(lock.New(rdb, lock.Config(cfg), nil))
}

// NewFromOptions returns a Client for one server, for the primary that Sentinels watch or for a cluster, as
// redis.NewUniversalClient reads the options, which redisurl.Parse returns. It makes no client of go-redis.
// A Client asks all Sentinels at once, on one connection to each, and the newest answer counts.
//
// Options, connections and errors are as for New.
func NewFromOptions(opts *redis.UniversalOptions, cfg Config) (*Client, error) {
	return opened(lock.NewFromOptions(opts, lock.Config(cfg), nil))
}

// Identity returns the name that HeldError and Inspect show as the holder of this Client's
// locks.
func (c *Client) Identity() string { return c.room().Identity() }

// Close ends all leases of the Client with ErrClosed and releases their locks. Waiting
// calls return ErrClosed. Then Close ends all goroutines and connections of the Client.
//
// Close does not wait for the work that is done under the leases: stop that work first.
// If ctx ends before all locks are released, Close returns ctx's error, and the server
// frees the remaining locks when their TTLs expire. For each name that the Client
// released less than a second ago, Close sends one more request, for at most a second. With it,
// other processes notice if the next holder is frozen. A Client of a quorum also waits for the answers of the
// slower servers to the last releases. A second Close returns ErrClosed.
func (c *Client) Close(ctx context.Context) error { return c.room().Close(ctx) }
