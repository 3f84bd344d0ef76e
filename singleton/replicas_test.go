package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

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
