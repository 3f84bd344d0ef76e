package lock

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
)

var (
	whereTo = []string{"Network", "Addr", "Addrs", "MasterName", "SentinelAddrs", "SentinelUsername", "SentinelPassword", "IsClusterMode"}

	usedOptions = []string{
		"ClientName", "Dialer", "Username", "Password", "CredentialsProvider", "CredentialsProviderContext",
		"StreamingCredentialsProvider", "DB", "DialTimeout", "TLSConfig", "ConnMaxIdleTime", "ConnMaxLifetime", "ConnMaxLifetimeJitter",
	}
	refusedOptions = []string{"OnConnect", "Limiter", "NewClient", "ClusterSlots", "ReadOnly", "RouteByLatency", "RouteRandomly"}

	// ignoredOptions do not change what a connection of a Client does.
	ignoredOptions = []string{
		"ReplicaOnly", // NewFromOptions refuses ReadOnly; no other client shows it
		"Protocol",    // connections speak RESP 2
		"NodeAddress", "MaxRedirects", "RouteByLatencyTolerance", "UseDisconnectedReplicas", "MaxRetries", "MinRetryBackoff", "MaxRetryBackoff",
		"DialerRetries", "DialerRetryTimeout", "DialerRetryBackoff", "ReadTimeout", "WriteTimeout", "ContextTimeoutEnabled",
		"ReadBufferSize", "WriteBufferSize", "PipelineReadBufferSize", "PipelineWriteBufferSize", "PipelinePoolSize", "AutoPipelineOptions",
		"MaxConcurrentDials", "PoolFIFO", "PoolSize", "PoolTimeout", "MinIdleConns", "MaxIdleConns", "MaxActiveConns",
		"DisableRoutingPolicies", "DisableIndentity", "DisableIdentity", "IdentitySuffix", "UnstableResp3", "PushNotificationProcessor",
		"FailingTimeoutSeconds", "MaintNotificationsConfig", "ShardPicker", "ClusterStateReloadInterval",
		"ClientSideCacheConfig", "ClientSideCache", "ClientSideCacheStrategy", "ClientSideCacheRefreshOnInvalidate",
		"ClientSideCacheCoalesceMisses", "ClientSideCacheInvalidationBatchWindow",
	}
)

type limiter struct{ redis.Limiter }

// set gives a field of options a value.
func set(f reflect.Value, name string) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(true)
	case reflect.String:
		f.SetString(name)
	case reflect.Int, reflect.Int64:
		f.SetInt(300)
	case reflect.Func:
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("not called") }))
	case reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
	default:
		if name == "Limiter" { // StreamingCredentialsProvider excludes the other ones
			f.Set(reflect.ValueOf(limiter{}))
		}
	}
}

// A new version of go-redis may have an option that is in no list.
func TestEveryOptionIsUsedOrRefusedOrIgnored(t *testing.T) {
	t.Parallel()
	all := slices.Concat(whereTo, usedOptions, refusedOptions, ignoredOptions)
	for _, options := range []any{redis.Options{}, redis.ClusterOptions{}, redis.FailoverOptions{}, redis.UniversalOptions{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(options)) {
			if n := len(slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name != f.Name })); f.IsExported() && n != 1 {
				t.Errorf("%T.%s is in %d lists", options, f.Name, n)
			}
		}
	}
}

// targets are those of options that change sets.
func targets(change func(options any)) map[string]func() (target, error) {
	addrs := []string{"h:1", "h:2"}
	universal := func(o redis.UniversalOptions) func() (target, error) {
		return func() (target, error) {
			change(&o)
			return targetOfOptions(&o)
		}
	}
	return map[string]func() (target, error){
		"*redis.Client": func() (target, error) {
			o := &redis.Options{Addr: addrs[0]}
			change(o)
			rdb := redis.NewClient(o)
			defer rdb.Close()
			return targetOf("rdb", rdb)
		},
		"*redis.ClusterClient": func() (target, error) {
			o := &redis.ClusterOptions{Addrs: addrs}
			change(o)
			rdb := redis.NewClusterClient(o)
			defer rdb.Close()
			return targetOf("rdb", rdb)
		},
		"one server": universal(redis.UniversalOptions{Addrs: addrs[:1]}),
		"cluster":    universal(redis.UniversalOptions{Addrs: addrs}),
		"Sentinel":   universal(redis.UniversalOptions{Addrs: addrs, MasterName: "m"}),
	}
}

// Each option has its effect on every kind of client that has it, or is refused there.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(usedOptions, refusedOptions) {
		var given reflect.Value
		for of, make := range targets(func(options any) {
			reflect.ValueOf(options).Elem().FieldByName("ConnMaxLifetime").SetInt(300) // it limits its jitter
			if given = reflect.ValueOf(options).Elem().FieldByName(name); given.IsValid() {
				set(given, name)
			}
		}) {
			target, err := make()
			refused := slices.Contains(refusedOptions, name) || of == "cluster" && name == "DB"
			switch {
			case !given.IsValid():
			case refused:
				isRefused(t, err, map[bool]string{true: "rdb.Options().", false: "opts."}[of[0] == '*']+name)
			case err != nil:
				t.Errorf("%s, %s: %v", of, name, err)
			case (target.seeds != nil) != (of == "cluster" || of == "*redis.ClusterClient") || (target.sentinels != nil) != (of == "Sentinel"):
				t.Errorf("%s: seeds %v, or no Sentinels, or too many", of, target.seeds)
			default:
				got := reflect.ValueOf(target.Options).FieldByName(name)
				if got.Kind() == reflect.Func && got.Pointer() != given.Pointer() || got.Kind() != reflect.Func && !reflect.DeepEqual(got.Interface(), given.Interface()) {
					t.Errorf("%s: %s is %v, want %v", of, name, got, given)
				}
			}
		}
	}
}

func isRefused(t *testing.T, err error, field string) {
	t.Helper()
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); !ok || refused.Field != field || len(err.Error()) > 200 {
		t.Errorf("error %v, want a sentence about %s", err, field)
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	t.Parallel()
	one := []string{"h:1"}
	for _, bad := range []struct {
		opts  *redis.UniversalOptions
		field string
	}{
		{nil, "opts"},
		{&redis.UniversalOptions{}, "opts.Addrs"},
		{&redis.UniversalOptions{Addrs: []string{"h:1", ""}}, "opts.Addrs"},
		{&redis.UniversalOptions{MasterName: "m"}, "opts.Addrs"},
		{&redis.UniversalOptions{Addrs: one, MasterName: "m", IsClusterMode: true}, "opts.IsClusterMode"},
		{&redis.UniversalOptions{Addrs: one, IsClusterMode: true, DB: 1}, "opts.DB"},
		{&redis.UniversalOptions{Addrs: one, SentinelUsername: "u"}, "opts.MasterName"},
		{&redis.UniversalOptions{Addrs: []string{"h:1", "h:2"}, SentinelPassword: "secret"}, "opts.MasterName"},
	} {
		_, err := targetOfOptions(bad.opts)
		isRefused(t, err, bad.field)
		if strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}
