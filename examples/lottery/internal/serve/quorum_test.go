package serve

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Two replicas draw each noon once on five servers: while two servers are down, when the one that
// holds the lease stops, and late after a time without replicas.
func TestReplicasOnSeveralServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers []*lockcoretest.Redis
		for range 5 {
			servers = append(servers, lockcoretest.NewRedis(t))
		}
		dsn, err := store.ParseDSN("sqlite:" + filepath.Join(t.TempDir(), "lottery.db"))
		if err != nil {
			t.Fatal(err)
		}
		list := entrants.FS(fstest.MapFS{"list.csv": {Data: []byte("id,eligible\na,true\nb,true\n")}}, "list.csv")
		began := time.Now()
		start := func(identity string) (r *Replica, stop func()) {
			var all []*redis.UniversalOptions
			for _, s := range servers {
				server := s.Options()
				all = append(all, &redis.UniversalOptions{
					Addrs: []string{server.Addr}, Dialer: server.Dialer,
					DisableIdentity: server.DisableIdentity, MaintNotificationsConfig: server.MaintNotificationsConfig,
				})
			}
			r, err := newReplica(t.Context(), Config{
				Redis: all, Database: dsn, Entrants: list, Schedule: "@every 1m", Location: time.UTC,
				Winners: 1, Lease: time.Second, Identity: identity, StaleAfter: time.Hour,
			}, func() time.Duration { return time.Since(began) })
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			return r, func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		_, stopA := start("a")
		time.Sleep(10 * time.Second)
		b, stopB := start("b")
		time.Sleep(50*time.Second + 30*time.Second)
		servers[0].Stop()
		servers[3].Stop()
		time.Sleep(time.Minute)
		stopA()
		time.Sleep(time.Minute)
		for name, check := range map[string]func() error{
			"redis": func() error { return b.redis.check(t.Context()) }, "ledger": b.work.Ready, "draw": func() error { return b.work.Check(0) },
		} {
			if err := check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if at, err := b.lastDraw(t.Context()); err != nil || time.Since(at) > time.Minute {
			t.Errorf("the last draw is of %v, %v", at, err)
		}
		stopB()
		// A draw that was triggered on a single server before is no noon after which noons are drawn.
		st, err := store.Open(t.Context(), dsn, noon.StoreConfig(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		former, err := st.Draws(t.Context(), noon.Job, began, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		triggered := singleton.Run{Job: noon.Job, Tick: time.Now().Truncate(time.Millisecond), Triggered: true, Attempt: 1, Token: former[len(former)-1].Token, Holder: "t"}
		if err := (&noon.Drawing{Store: st, Winners: 1}).Draw(t.Context(), triggered); err != nil {
			t.Fatal(err)
		}
		st.Close()
		time.Sleep(2 * time.Minute) // without any replica
		_, stopC := start("c")
		time.Sleep(10 * time.Second)
		st, err = store.View(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		draws, err := st.Draws(t.Context(), noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
		if err != nil {
			t.Fatal(err)
		}
		stopC()
		var by []string
		at := slices.IndexFunc(draws, func(d store.Draw) bool { return d.Triggered })
		draws = slices.Delete(draws, at, at+1)
		for i, d := range draws {
			by = append(by, d.DrawnBy)
			if i > 0 && (d.Tick.Sub(draws[i-1].Tick) != time.Minute || d.Token < draws[i-1].Token) {
				t.Errorf("draw %+v after %+v", d, draws[i-1])
			}
		}
		if got := strings.Join(by, ""); got != "aabcc" {
			t.Errorf("the noons were drawn by %q, want aabcc", got)
		}
	})
}
