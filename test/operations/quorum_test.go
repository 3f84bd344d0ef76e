//go:build linux

package operations

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

const quorumSection = "Servers of a quorum"

// servers starts Redis servers beside that of the world, and returns all.
func (w *world) servers(n int) []*servers.RedisServer {
	w.Helper()
	all := []*servers.RedisServer{w.redis}
	for len(all) < n {
		all = append(all, servers.Redis(w))
	}
	return all
}

// A member is a client of several servers. It acquires a lock again and again.
type member struct {
	*program // its log
	page     *httptest.Server
	end      func()

	lock    sync.Mutex
	granted int
	last    error // of the last try
}

// member starts a client of a list of servers, with the number of the list.
func (w *world) member(list int, all []*servers.RedisServer) *member {
	w.Helper()
	m := &member{program: &program{w: w}}
	metrics := prometheus.NewRegistry()
	var rdbs []redis.UniversalClient
	for _, s := range all {
		rdb := redis.NewClient(testenv.Options(s.Addr()))
		w.Cleanup(func() { rdb.Close() })
		rdbs = append(rdbs, rdb)
	}
	client, err := lockcore.NewQuorum(rdbs, lockcore.QuorumConfig{
		Config: lockcore.Config{Logger: logr.FromSlogHandler(slog.NewTextHandler(m, nil)), Registerer: metrics}, List: list, MaxTTL: time.Second,
	})
	testenv.Must(w, err)
	mutex, err := client.Mutex("orders", testenv.TTL(time.Second))
	testenv.Must(w, err)
	m.page = httptest.NewServer(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			lease, err := mutex.Lock(ctx)
			m.lock.Lock()
			if m.last = err; err == nil {
				m.granted++
			}
			m.lock.Unlock()
			if err == nil {
				_ = lease.Unlock(ctx) // it may have expired
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	m.end = sync.OnceFunc(func() {
		cancel()
		done.Wait()
		_ = client.Close(context.Background()) // servers may be away
		m.page.Close()
	})
	w.Cleanup(m.end)
	return m
}

// holds waits until the member has been granted the lock.
func (m *member) holds() {
	m.w.Helper()
	count := func() int {
		m.lock.Lock()
		defer m.lock.Unlock()
		return m.granted
	}
	before := count()
	m.w.until(func() bool { return count() > before }, func() string { return "it holds the lock:\n" + m.String() })
}

// metric waits until the metrics of the member match a pattern.
func (m *member) metric(pattern string) {
	m.w.Helper()
	m.w.exports(answers(m.w, m.page.URL, 200, "^"+pattern))
}

// quorum has three servers. One restarts, and then a majority loses its data.
func quorum(w *world) {
	all := w.servers(3)
	doctor := w.take(w, "a server restarts", "wait until `noonctl doctor`, with `--redis` for each server, has no warning of `quorum`")
	words := []string{doctor[0]}
	for _, s := range all {
		words = append(words, doctor[1], "redis://"+s.Addr())
	}
	examine := strings.Join(words, " ")
	one := w.member(1, all)
	one.holds()
	key := w.take(w, quorumSection, "The key `noonlock:quorum` of each server has its state")[0]
	for _, s := range all {
		w.cli(s, "HGET "+key+" list") // fails if it has none
	}
	names := w.take(w, quorumSection, "So do `noonlock_quorum_server_up` and `noonlock_quorum_requests_total`")

	all[2].Stop()
	one.metric(names[0] + `\{server="` + all[2].Addr() + `"\} 0`)
	one.metric(names[1] + `\{outcome="failed",server="` + all[2].Addr() + `"\} [1-9]`)
	all[2].Restart(w) // it has lost its data
	w.take(w, "Clocks of several servers", "`noonctl doctor` compares the nodes of a cluster and the servers of a quorum")
	one.logs(`member of the quorum.* server=` + all[2].Addr() + ` (?:.*\n)*.*member of the quorum.* server=` + all[2].Addr())
	var r result
	w.until(func() bool {
		r = w.sh(examine)
		return !contains(r.out, `^(?:warn|fail) +quorum`)
	}, func() string { return "doctor has no warning: " + r.String() })
	if !contains(r.out, `^ok +quorum .*`+all[2].Addr(), `^\w+ +clock .*`+all[2].Addr()) {
		w.Errorf("doctor does not compare the servers: %s", r)
	}

	for _, s := range all[:2] {
		w.cli(s, "FLUSHALL")
	}
	w.until(func() bool {
		one.lock.Lock()
		defer one.lock.Unlock()
		return one.last != nil && strings.Contains(one.last.Error(), "have lost their data")
	}, func() string { return "the reason is that they have lost their data:\n" + one.String() })
	w.cli(all[2], w.command(quorumSection, "Then run `HDEL noonlock:quorum list` on each server that still has its data"))
	one.holds()
}

// lists has five servers. One of them is replaced, and then three remain.
func lists(w *world) {
	all := w.servers(6)
	old := w.member(1, all[:5])
	old.holds()
	w.take(w, quorumSection, "give all clients the new list with `QuorumConfig.List` increased by one")
	replaced := w.member(2, all[1:])
	old.logs(`level=ERROR msg="this process has other servers than the quorum"`)
	replaced.holds()
	old.end()
	replaced.end()
	w.raw.Pass(time.Second) // MaxTTL
	key := w.take(w, quorumSection, "To have fewer servers, stop all clients for `MaxTTL`, delete the key `noonlock:quorum` on each remaining server, and start the clients with the new list")[1]
	for _, s := range all[3:] {
		w.cli(s, "DEL "+key)
	}
	w.member(3, all[3:]).holds()
}
