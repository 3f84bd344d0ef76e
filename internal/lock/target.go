package lock

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/wire"
)

// A target has the options and addresses of a Client's servers, read from a client or options of go-redis.
type target struct {
	redis.Options
	seeds     []string        // addresses of a cluster's nodes, nil for one server
	sentinels *wire.Sentinels // nil without Sentinels
}

func (t target) connect(cfg wire.Config) wire.Wire {
	if t.seeds != nil {
		return cluster.New(t.Options, t.seeds, cfg)
	}
	cfg.Sentinels = t.sentinels
	return wire.NewServer(t.Options, wire.Node{}, cfg)
}

// targetOf returns the target of a client, and does not use the client itself. The error is a *noonlock.ConfigError
// about the field.
func targetOf(field string, rdb redis.UniversalClient) (target, error) {
	value, rule := fmt.Sprintf("a %T", rdb), "a *redis.Client, such as redis.NewClient makes, or a *redis.ClusterClient"
	if v := reflect.ValueOf(rdb); v.Kind() == reflect.Pointer && (v.IsNil() || v.Elem().IsZero()) {
		return target{}, Refuse(field, rule, value+" without options")
	}
	switch r := rdb.(type) {
	case nil:
		value = "nil"
	case *redis.Client:
		if r.Options().Addr == "FailoverClient" { // as redis.NewFailoverClient sets it
			return target{}, Refuse(field, "a client of a server or a cluster; for Sentinels, use NewFromOptions, which asks all of them", "of redis.NewFailoverClient, which hides its Sentinels")
		}
		return target{Options: *r.Options()}, fault(field+".Options()", r.Options(), r.Options().Addr)
	case *redis.ClusterClient:
		c := r.Options()
		if err := fault(field+".Options()", c, c.Addrs...); err != nil {
			return target{}, err
		}
		return nodesOf(c), nil
	case *redis.Ring:
		rule += "; a ring moves keys, and therefore locks, when a shard fails"
	case *redis.AutoPipeliner:
		rule += "; a pipeliner delays requests, and a lease counts from before its request"
	}
	return target{}, Refuse(field, rule, value)
}

// targetOfOptions returns the target of the client that redis.NewUniversalClient would make.
func targetOfOptions(opts *redis.UniversalOptions) (target, error) {
	if opts == nil {
		return target{}, Refuse("opts", "the options of a server, of Sentinels or of a cluster", "nil")
	}
	sentinels := opts.MasterName != ""
	seeds := !sentinels && (opts.IsClusterMode || len(opts.Addrs) > 1)
	switch err := fault("opts", opts, opts.Addrs...); {
	case err != nil:
		return target{}, err
	case sentinels && opts.IsClusterMode:
		return target{}, Refuse("opts.IsClusterMode", "false with a MasterName, because a Client uses only the primary", true)
	case !sentinels && opts.SentinelUsername+opts.SentinelPassword != "":
		return target{}, Refuse("opts.MasterName", "the name of the primary, because the options have a user or password of Sentinels", "empty")
	case seeds && opts.DB != 0:
		return target{}, Refuse("opts.DB", "0 in a cluster", opts.DB)
	}
	t := nodesOf(opts.Cluster())
	if !seeds {
		t.DB, t.seeds = opts.DB, nil
	}
	if sentinels {
		options := t.Options
		options.Username, options.Password = opts.SentinelUsername, opts.SentinelPassword
		options.CredentialsProvider, options.CredentialsProviderContext, options.StreamingCredentialsProvider = nil, nil, nil
		t.Addr, t.sentinels = opts.MasterName, wire.NewSentinels(options, opts.Addrs, opts.MasterName)
	}
	return t, nil
}

// fault returns a *noonlock.ConfigError for options of go-redis with a field that would change what a Client does. Other
// fields are used, or only tune go-redis.
func fault(field string, options any, addrs ...string) error {
	const noReplica = "false, because a replica may not have the newest locks"
	for _, forbidden := range []struct{ field, rule string }{
		{"RouteByLatency", noReplica},
		{"RouteRandomly", noReplica},
		{"ReadOnly", noReplica}, // a ClusterClient sets it with RouteByLatency and RouteRandomly
		{"ClusterSlots", "nil, because a Client asks the cluster; use NewFromOptions for Sentinel"},
		{"NewClient", "nil, because a Client makes its own connections to the nodes"},
		{"OnConnect", "nil, because what it sends could change what the connections of a Client do"},
		{"Limiter", "nil, because leases would end with renewals that it refuses"},
	} {
		f := reflect.ValueOf(options).Elem().FieldByName(forbidden.field)
		// redis.NewClient is the default of the field NewClient.
		if f.IsValid() && !f.IsZero() && (f.Kind() != reflect.Func || f.Pointer() != reflect.ValueOf(redis.NewClient).Pointer()) {
			return Refuse(field+"."+forbidden.field, forbidden.rule, "set")
		}
	}
	if len(addrs) == 0 || slices.Contains(addrs, "") {
		return Refuse(field+".Addrs", "one address at least, and none that is empty", fmt.Sprintf("%q", addrs))
	}
	return nil
}

// nodesOf returns the target of a cluster, with the options of go-redis for each node.
func nodesOf(c *redis.ClusterOptions) target {
	// This client only fills in the defaults of the options. It makes no connection.
	node := redis.NewClient(&redis.Options{
		Addr: c.Addrs[0], ClientName: c.ClientName, Dialer: c.Dialer,
		Username: c.Username, Password: c.Password,
		CredentialsProvider: c.CredentialsProvider, CredentialsProviderContext: c.CredentialsProviderContext,
		StreamingCredentialsProvider: c.StreamingCredentialsProvider,
		DialTimeout:                  c.DialTimeout, TLSConfig: c.TLSConfig,
		ConnMaxIdleTime: c.ConnMaxIdleTime, ConnMaxLifetime: c.ConnMaxLifetime, ConnMaxLifetimeJitter: c.ConnMaxLifetimeJitter,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer node.Close()
	return target{Options: *node.Options(), seeds: slices.Clone(c.Addrs)}
}

// A Server is a server of a Client, or a replica in a cluster.
type Server struct {
	Options redis.Options // with their defaults filled in
	Tag     string        // hash tag of a slot at the server, only in a cluster
}
