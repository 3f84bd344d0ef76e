// Package inputs contains what the examples do with their inputs.
package inputs

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns a client for lockcore.New and for readiness checks.
func Client(options *redis.UniversalOptions) redis.UniversalClient {
	o := *options
	o.MaxRetries, o.DialerRetries = -1, 1 // a check asks whether Redis answers now
	o.ContextTimeoutEnabled = true
	o.PoolSize = 2
	if o.MasterName != "" {
		o.ReadTimeout = cmp.Or(o.ReadTimeout, 500*time.Millisecond) // of questions to a Sentinel
	}
	if o.IsClusterMode {
		cluster := o.Cluster()
		cluster.DisableRoutingPolicies = true // they need the right +command
		return redis.NewClusterClient(cluster)
	}
	return redis.NewUniversalClient(&o)
}

// Ping asks whether Redis answers. In a cluster, it asks the node with the keys of a name,
// since the others do not matter.
func Ping(ctx context.Context, rdb redis.UniversalClient, name string) error {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		return c.Exists(ctx, "noonlock:{"+name+"}").Err()
	}
	err := rdb.Ping(ctx).Err()
	if errors.Is(err, redis.Nil) { // an answer of a Sentinel, which go-redis calls unreachable
		return errors.New("the Sentinels know no primary of the name that the URL gives as master")
	}
	return err
}

// Hosts returns the addresses of Redis, for a person.
func Hosts(options *redis.UniversalOptions) string { return strings.Join(options.Addrs, ",") }

// IsPort reports whether s is empty or a port from 1 to 65535.
func IsPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}
