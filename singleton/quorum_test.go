package singleton_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A Daemon runs on a quorum, and another replica takes over when it stops. A minority of the
// servers may be away. What needs a record on one server is refused.
func TestDaemonOnAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers []*lockcoretest.Redis
		for range 3 {
			servers = append(servers, lockcoretest.NewRedis(t))
		}
		client := func() *lockcore.Client {
			var all []redis.UniversalClient
			for _, s := range servers {
				rdb := redis.NewClient(s.Options())
				t.Cleanup(func() { _ = rdb.Close() })
				all = append(all, rdb)
			}
			c, err := lockcore.NewQuorum(all, lockcore.QuorumConfig{})
			testenv.Must(t, err)
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			return c
		}
		tokens := make(chan uint64, 2)
		start := func() (stop func()) {
			d, err := singleton.NewDaemon(client(), "feed", func(ctx context.Context, token uint64) error {
				tokens <- token
				<-ctx.Done()
				return nil
			}, singleton.DaemonConfig{})
			testenv.Must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- d.Run(ctx) }()
			return func() {
				cancel()
				testenv.Must(t, <-done)
			}
		}
		stopFirst := start()
		first := <-tokens
		stopSecond := start()
		servers[1].Stop()
		time.Sleep(time.Minute)
		select {
		case token := <-tokens:
			t.Fatalf("token %d beside %d", token, first)
		default:
		}
		stopFirst()
		if second := <-tokens; second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		stopSecond()

		c := client()
		_, err := singleton.NewRunner(c, singleton.Config{})
		testenv.MustIs(t, err, noonlock.ErrConfig)
		_, err = singleton.NewOnce(c, "migration", singleton.OnceConfig{})
		testenv.MustIs(t, err, noonlock.ErrConfig)
		_, err = singleton.NewJob(c, "job")
		testenv.MustIs(t, err, noonlock.ErrConfig)
	})
}
