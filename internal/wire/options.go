package wire

import (
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// maxDialTime limits a dial that honors its context.
const maxDialTime = 3 * time.Second

// UnsupportedError says that a client cannot be used.
type UnsupportedError struct {
	Given string // what it is
	Want  string // what it must be
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("lockcore: the client is %s; it must be %s", e.Given, e.Want)
}

// givenOptions returns the options of the given client. For a cluster these are the options
// of each node, and seeds are the addresses of some nodes. The error is an *UnsupportedError.
//
// The Dialer of a failover client asks a Sentinel for the address of the primary, and dials
// that. So a new connection leads to the present primary.
func givenOptions(rdb redis.UniversalClient) (opt *redis.Options, seeds []string, err error) {
	const want = "a *redis.Client, such as redis.NewClient or redis.NewFailoverClient makes, or a *redis.ClusterClient"
	switch r := rdb.(type) {
	case nil:
		return nil, nil, &UnsupportedError{"nil", want}
	case *redis.Client:
		switch {
		case r == nil:
			return nil, nil, &UnsupportedError{"a nil *redis.Client", want}
		case reflect.ValueOf(r).Elem().IsZero():
			return nil, nil, &UnsupportedError{"a redis.Client{} without options", want}
		case r.Options().OnConnect != nil:
			return nil, nil, errOnConnect
		}
		return r.Options(), nil, nil
	case *redis.ClusterClient:
		switch {
		case r == nil:
			return nil, nil, &UnsupportedError{"a nil *redis.ClusterClient", want}
		case reflect.ValueOf(r).Elem().IsZero():
			return nil, nil, &UnsupportedError{"a redis.ClusterClient{} without options", want}
		}
		return clusterOptions(r.Options())
	case *redis.Ring:
		return nil, nil, &UnsupportedError{"a *redis.Ring", want + "; a ring moves keys, and therefore locks, when a shard fails"}
	case *redis.AutoPipeliner:
		return nil, nil, &UnsupportedError{"a *redis.AutoPipeliner", want + "; a pipeliner delays requests, and a lease counts from before its request"}
	default:
		return nil, nil, &UnsupportedError{fmt.Sprintf("%T", rdb), want}
	}
}

var errOnConnect = &UnsupportedError{
	"a client with OnConnect",
	"one without it: noonlock makes its own connections, and what OnConnect sends could change what they do",
}

// clusterOptions returns the options of each node of a cluster.
func clusterOptions(c *redis.ClusterOptions) (opt *redis.Options, seeds []string, err error) {
	switch {
	case c.ReadOnly || c.RouteByLatency || c.RouteRandomly:
		return nil, nil, &UnsupportedError{
			"a *redis.ClusterClient that reads from replicas",
			"one without ReadOnly, RouteByLatency and RouteRandomly; a replica may not have the newest locks",
		}
	case c.ClusterSlots != nil:
		return nil, nil, &UnsupportedError{
			"a *redis.ClusterClient with its own ClusterSlots",
			"one of a Redis Cluster; use redis.NewFailoverClient for Sentinel",
		}
	case c.OnConnect != nil:
		return nil, nil, errOnConnect
	case len(c.Addrs) == 0:
		return nil, nil, &UnsupportedError{"a *redis.ClusterClient without Addrs", "one with the address of a node at least"}
	}
	// This client makes no connection. It completes the options.
	node := redis.NewClient(&redis.Options{
		Addr: c.Addrs[0], ClientName: c.ClientName, Dialer: c.Dialer, Protocol: c.Protocol,
		Username: c.Username, Password: c.Password,
		CredentialsProvider: c.CredentialsProvider, CredentialsProviderContext: c.CredentialsProviderContext,
		StreamingCredentialsProvider: c.StreamingCredentialsProvider,
		DialTimeout:                  c.DialTimeout, TLSConfig: c.TLSConfig,
		ReadBufferSize: c.ReadBufferSize, WriteBufferSize: c.WriteBufferSize,
		ConnMaxIdleTime: c.ConnMaxIdleTime, ConnMaxLifetime: c.ConnMaxLifetime, ConnMaxLifetimeJitter: c.ConnMaxLifetimeJitter,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer node.Close()
	return node.Options(), c.Addrs, nil
}

// ownOptions adapts the options of a client for this package.
func ownOptions(opt redis.Options) redis.Options {
	if opt.DialTimeout <= 0 || opt.DialTimeout > maxDialTime {
		opt.DialTimeout = maxDialTime
	}
	return opt
}
