package lockcore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A watched primary has two replicas and three Sentinels. Two of them may promote a replica.
type watched struct {
	*env
	primary   *servers.RedisServer // the first one
	replicas  []*servers.RedisServer
	sentinels []*servers.RedisServer
	raw       *redis.Client
}

const watchedName = "noon"

// sentinelEnv starts the servers. opts are further lines of redis.conf.
func sentinelEnv(t *testing.T, opts ...string) *watched {
	t.Helper()
	opts = slices.Concat(opts, peersOnly, []string{"repl-diskless-sync-delay 0", "repl-ping-replica-period 1"})
	e := realEnv(t, opts...)
	w := &watched{env: e, primary: e.Real}
	for range 2 {
		w.replicas = append(w.replicas, servers.Redis(t, append(slices.Clone(opts), e.Real.ReplicaOf())...))
	}
	for range 3 {
		w.sentinels = append(w.sentinels, servers.Sentinel(t, watchedName, e.Real.Addr(), 2,
			"sentinel auth-user "+watchedName+" peer", "sentinel auth-pass "+watchedName+" secret",
			"sentinel failover-timeout "+watchedName+" 5000"))
	}
	opt := w.options("raw")
	// A loaded machine may take long. A dial must outlast two questions to a frozen Sentinel:
	// go-redis asks another one after them only.
	opt.ReadTimeout, opt.DialTimeout = 5*time.Second, time.Minute
	w.raw = redis.NewFailoverClient(opt)
	e.Raw = w.raw
	t.Cleanup(func() { w.raw.Close() })
	awaitSentinels(t, watchedName, len(w.replicas), w.sentinels...)
	return w
}

func (w *watched) options(name string) *redis.FailoverOptions {
	opt := &redis.FailoverOptions{
		MasterName: watchedName, ClientName: name,
		ReadTimeout: 500 * time.Millisecond, MaxRetries: -1, // of questions to a Sentinel
	}
	for _, s := range w.sentinels {
		opt.SentinelAddrs = append(opt.SentinelAddrs, s.Addr())
	}
	return opt
}

// failoverClient returns a Client that reaches the primary through the Sentinels.
func (w *watched) failoverClient(identity string, reg prometheus.Registerer) *lockcore.Client {
	w.Helper()
	return w.clientOf(redis.NewFailoverClient(w.options(identity)), lockcore.Config{Identity: identity, Registerer: reg})
}

// asks returns the Sentinel that a client asks for the primary.
func (w *watched) asks(client string) *servers.RedisServer {
	w.Helper()
	for _, s := range w.sentinels {
		rdb := redis.NewClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		if list, err := rdb.ClientList(w.Context()).Result(); err == nil && strings.Contains(list, "name="+client+" ") {
			return s
		}
	}
	w.Fatalf("%s asks no Sentinel", client)
	return nil
}

// freezes pauses a Sentinel until the end of the test, or until Resume.
func (w *watched) freezes(sentinel *servers.RedisServer) {
	sentinel.Pause()
	w.Cleanup(sentinel.Resume)
	w.sentinels = slices.DeleteFunc(slices.Clone(w.sentinels), func(s *servers.RedisServer) bool { return s == sentinel })
}

// promoted promotes a replica, and waits until it accepts writes.
func (w *watched) promoted() {
	w.Helper()
	promote(w, watchedName, w.primary.Addr(), w.sentinels...)
	w.Until("another primary accepts writes", func() bool {
		return w.Raw.Set(w.Context(), "probe", 1, time.Minute).Err() == nil
	})
}

// subscribed waits until all channels have a subscriber at the new primary.
func (w *watched) subscribed(channels []string) {
	w.Helper()
	w.Until("all subscriptions are at the new primary", func() bool {
		n, err := w.Raw.PubSubNumSub(w.Context(), channels...).Result()
		return err == nil && !slices.ContainsFunc(channels, func(c string) bool { return n[c] != 1 })
	})
}
