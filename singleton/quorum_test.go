package singleton_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A DaemonRunner runs on a quorum, and another replica takes over when it stops. A minority of the
// servers may be away. What needs a record on one server is refused.
func TestDaemonOnAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers []*lockcoretest.Redis
		for range 3 {
			servers = append(servers, lockcoretest.NewRedis(t))
		}
		client := func(cfg lockcore.QuorumConfig) *lockcore.Client {
			var all []redis.UniversalClient
			for _, s := range servers {
				rdb := redis.NewClient(s.Options())
				t.Cleanup(func() { _ = rdb.Close() })
				all = append(all, rdb)
			}
			c, err := lockcore.NewQuorum(all, cfg)
			testenv.Must(t, err)
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			return c
		}
		tokens := make(chan uint64, 2)
		start := func(identity string) (stop func()) {
			d, err := singleton.NewDaemonRunner(client(lockcore.QuorumConfig{Config: lockcore.Config{Identity: identity}}), "feed", func(ctx context.Context) error {
				tokens <- lockcore.FromContext(ctx).Token()
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
		c := client(lockcore.QuorumConfig{MaxTTL: 5 * time.Second}) // shorter than any TTL
		d, err := singleton.NewDaemon(c, "feed")
		testenv.Must(t, err)
		hints := d.Watch(t.Context())
		stopFirst := start("first")
		first := <-tokens
		hinted(t, d, hints, "first")
		stopSecond := start("second")
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
		hinted(t, d, hints, "second")
		stopSecond()

		_, err = singleton.NewRunner(c, singleton.Config{})
		testenv.MustIs(t, err, noonlock.ErrConfig)
		_, err = singleton.NewOnce(c, "migration", singleton.OnceConfig{})
		testenv.MustIs(t, err, noonlock.ErrConfig)
		_, err = singleton.NewJob(c, "job")
		if !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), "the ledger of a job is kept on one server") {
			t.Errorf("a job: %v", err)
		}
	})
}

// A server without replicas grants no tick, no daemon and no Once that needs one.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1, Logger: f.log.Info("")})
		mustNot := func(what string) { t.Errorf("%s ran without a replica", what) }
		r, err := singleton.NewRunner(c, singleton.Config{})
		testenv.Must(t, err)
		testenv.Must(t, r.Add("draw", "@every 1m", func(context.Context, singleton.Run) error { mustNot("a tick"); return nil }, singleton.JobConfig{}))
		d, err := singleton.NewDaemonRunner(c, "watch", func(context.Context) error { mustNot("the daemon"); return nil }, singleton.DaemonConfig{})
		testenv.Must(t, err)
		o, err := singleton.NewOnce(c, "migrate", singleton.OnceConfig{})
		testenv.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		ended := make(chan error, 3)
		go func() { ended <- r.Run(ctx) }()
		go func() { ended <- d.Run(ctx) }()
		go func() {
			ended <- o.Do(ctx, func(context.Context) error { mustNot("the Once"); return nil })
		}()
		time.Sleep(150 * time.Second)
		for _, err := range []error{r.Ready(), d.Ready()} {
			if !errors.Is(err, lockcore.ErrNotReplicated) {
				t.Errorf("Ready: %v", err)
			}
		}
		for range 3 {
			if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lockcore.ErrNotReplicated) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}
