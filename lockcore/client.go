package lockcore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
)

// A Client acquires and renews leases on a Redis server, or on all primaries of a Redis
// Cluster. It opens three connections of its own to each server: for calls, renewals and
// messages. The number of its connections and permanent goroutines does not depend on the
// number of locks. A Client is safe for concurrent use, and one per process is enough.
type Client lock.Client

// room returns the Client as package lock and the packages above lockcore use it.
func (c *Client) room() *lock.Client { return (*lock.Client)(c) }

// New returns a Client for the server or cluster that the options of rdb name. The Client
// connects at its first use, with connections of its own, so that an exhausted pool of the
// application does not stop renewals. It copies the options of rdb, but not its hooks and
// limiter, and does not use rdb afterwards. There is one exception: a client of
// redis.NewFailoverClient must stay open until Close, because the Client uses its connections
// to the Sentinels.
//
// rdb must be a *redis.Client or a *redis.ClusterClient. Other types are refused, and so are a
// ClusterClient that reads from replicas, and options with OnConnect. The error is a *noonlock.ConfigError, or wraps an error of
// Config.Registerer.
func New(rdb redis.UniversalClient, cfg Config) (*Client, error) {
	s, err := ownScripts()
	if err != nil {
		return nil, err
	}
	c, err := lock.New(rdb, lock.Config(cfg), s, nil)
	return (*Client)(c), err
}

// Identity returns the name that HeldError and Inspect show as the holder of this Client's
// locks.
func (c *Client) Identity() string { return c.room().Identity() }

// Elapsed returns the time since the Client was created, measured by the clock of its
// leases. It never decreases. It includes the time for which the process was paused or the
// machine was suspended: CLOCK_BOOTTIME counts that on Linux. Elsewhere, leases look valid for too long
// after a suspend.
func (c *Client) Elapsed() time.Duration { return c.room().Elapsed() }

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
