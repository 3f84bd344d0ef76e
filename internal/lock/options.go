package lock

import (
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/wire"
)

// A target is where a client of the user connects to.
type target struct {
	redis.Options
	seeds []string // addresses of nodes of a cluster, each of which has the options; nil: one server
}

// targetOf returns the target of a client. It does not use the client itself. The error is a *noonlock.ConfigError about the field.
func targetOf(field string, rdb redis.UniversalClient) (target, error) {
	opt, seeds, unfit := givenOptions(rdb)
	if unfit != nil {
		return target{}, &noonlock.ConfigError{Package: "lockcore", Field: field, Value: unfit.given, Rule: unfit.want}
	}
	return target{*opt, seeds}, nil
}

// connect returns the Wire of the target.
func (t target) connect(cfg wire.Config) wire.Wire {
	if t.seeds != nil {
		return cluster.New(t.Options, t.seeds, cfg)
	}
	return wire.NewServer(t.Options, wire.Node{}, cfg)
}

// An unfit says why a client cannot be used.
type unfit struct {
	given string // what it is
	want  string // what it must be
}

// givenOptions returns the options of the given client. For a cluster these are the options
// of each node, and seeds are the addresses of some nodes.
//
// The Dialer of a failover client asks a Sentinel for the address of the primary, and dials
// that. So a new connection leads to the present primary.
func givenOptions(rdb redis.UniversalClient) (opt *redis.Options, seeds []string, bad *unfit) {
	const want = "a *redis.Client, such as redis.NewClient or redis.NewFailoverClient makes, or a *redis.ClusterClient"
	switch r := rdb.(type) {
	case nil:
		return nil, nil, &unfit{"nil", want}
	case *redis.Client:
		switch {
		case r == nil:
			return nil, nil, &unfit{"a nil *redis.Client", want}
		case reflect.ValueOf(r).Elem().IsZero():
			return nil, nil, &unfit{"a redis.Client{} without options", want}
		case r.Options().OnConnect != nil:
			return nil, nil, onConnect
		}
		return r.Options(), nil, nil
	case *redis.ClusterClient:
		switch {
		case r == nil:
			return nil, nil, &unfit{"a nil *redis.ClusterClient", want}
		case reflect.ValueOf(r).Elem().IsZero():
			return nil, nil, &unfit{"a redis.ClusterClient{} without options", want}
		}
		return clusterOptions(r.Options())
	case *redis.Ring:
		return nil, nil, &unfit{"a *redis.Ring", want + "; a ring moves keys, and therefore locks, when a shard fails"}
	case *redis.AutoPipeliner:
		return nil, nil, &unfit{"a *redis.AutoPipeliner", want + "; a pipeliner delays requests, and a lease counts from before its request"}
	default:
		return nil, nil, &unfit{fmt.Sprintf("%T", rdb), want}
	}
}

var onConnect = &unfit{
	"a client with OnConnect",
	"one without it: noonlock makes its own connections, and what OnConnect sends could change what they do",
}

// clusterOptions returns the options of each node of a cluster.
func clusterOptions(c *redis.ClusterOptions) (opt *redis.Options, seeds []string, bad *unfit) {
	switch {
	case c.ReadOnly || c.RouteByLatency || c.RouteRandomly:
		return nil, nil, &unfit{
			"a *redis.ClusterClient that reads from replicas",
			"one without ReadOnly, RouteByLatency and RouteRandomly; a replica may not have the newest locks",
		}
	case c.ClusterSlots != nil:
		return nil, nil, &unfit{
			"a *redis.ClusterClient with its own ClusterSlots",
			"one of a Redis Cluster; use redis.NewFailoverClient for Sentinel",
		}
	case c.OnConnect != nil:
		return nil, nil, onConnect
	case len(c.Addrs) == 0:
		return nil, nil, &unfit{"a *redis.ClusterClient without Addrs", "one with the address of a node at least"}
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
