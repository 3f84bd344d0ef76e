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
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// What needs a record on one server is refused on a quorum.
func TestQuorumIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers []redis.UniversalClient
		for range 3 {
			servers = append(servers, lockcoretest.NewRedis(t).Client())
		}
		c, err := lockcore.NewQuorum(servers, lockcore.QuorumConfig{})
		testenv.Must(t, err)
		defer c.Close(t.Context())
		_, err = singleton.NewRunner(c, singleton.Config{})
		testenv.MustIs(t, err, noonlock.ErrConfig)
		_, err = singleton.NewJob(c, "job")
		if !errors.Is(err, noonlock.ErrConfig) || !strings.Contains(err.Error(), "the ledger of a job is kept on one server") {
			t.Errorf("a job: %v", err)
		}
	})
}

// A server without replicas grants no tick and no Once that needs one.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1, Logger: f.log.Info("")})
		mustNot := func(what string) { t.Errorf("%s ran without a replica", what) }
		r, err := singleton.NewRunner(c, singleton.Config{})
		testenv.Must(t, err)
		testenv.Must(t, r.Add("draw", "@every 1m", func(context.Context, singleton.Run) error { mustNot("a tick"); return nil }, singleton.JobConfig{}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		ended := make(chan error, 2)
		go func() { ended <- r.Run(ctx) }()
		go func() {
			ended <- r.Once(ctx, "migrate", func(context.Context) error { mustNot("the Once"); return nil })
		}()
		time.Sleep(150 * time.Second)
		testenv.MustIs(t, r.Ready(), lockcore.ErrNotReplicated)
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lockcore.ErrNotReplicated) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}
