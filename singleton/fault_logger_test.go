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

// A logger blocks forever; lockcore tests other kinds. Runs begin on time and are
// recorded, those that are lost end, another replica continues them, and Run returns.
//
// Caught mutants: a Runner, a DaemonRunner or a Once calls the logger itself.
func TestFault63_LoggerThatFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		logger := testenv.BadLoggers()["stuck"](f.Env)
		client := func(identity string) *lockcore.Client {
			return f.ClientWith(f.Direct(), lockcore.Config{Identity: identity, Logger: logger})
		}
		runs, ends, begins := make(chan time.Duration, 1000), make(chan time.Duration, 1000), make(chan time.Duration, 10)
		ctx, cancel := context.WithCancel(t.Context())
		var all []chan error
		start := func(run func(context.Context) error) {
			ended := make(chan error, 1)
			all = append(all, ended)
			go func() { ended <- run(ctx) }()
		}
		for _, identity := range []string{"a", "b"} {
			c := client(identity)
			r, err := singleton.NewRunner(c, singleton.Config{TTL: 3 * time.Second, Logger: logger})
			testenv.Must(t, err)
			testenv.Must(t, r.Add("fails", "@every 10s", func(context.Context, singleton.Run) error {
				runs <- f.Clock()
				return errors.New("as expected")
			}, singleton.JobConfig{MaxAttempts: 2}))
			start(r.Run)
			d, err := singleton.NewDaemonRunner(c, "feed", func(ctx context.Context, _ uint64) error {
				begins <- f.Clock()
				<-ctx.Done()
				ends <- f.Clock()
				return nil
			}, singleton.DaemonConfig{TTL: 3 * time.Second, Logger: logger})
			testenv.Must(t, err)
			start(d.Run)
		}
		f.Pass(2 * time.Minute)
		if n := len(runs); n < 20 {
			t.Errorf("%d runs", n)
		}
		if n := len(begins); n != 1 {
			t.Fatalf("the daemon's work began %d times", n)
		}
		lost := f.Clock()
		testenv.Must(t, f.Raw.FlushAll(t.Context()).Err())
		if took := <-ends - lost; took > 3*time.Second {
			t.Errorf("the daemon's work ended %v after the loss", took)
		}
		<-begins
		if took := <-begins - lost; took > 5*time.Second {
			t.Errorf("the daemon's work began again %v after the loss", took)
		}
		o, err := singleton.NewOnce(client("c"), "load", singleton.OnceConfig{Logger: logger})
		testenv.Must(t, err)
		began := f.Clock()
		if err := o.Do(t.Context(), func(context.Context, uint64) error { return errors.New("as expected") }); err == nil {
			t.Error("Do returned nil")
		}
		if took := f.Clock() - began; took > 2*time.Second { // it waits a second for its lines
			t.Errorf("Do took %v", took)
		}
		began = f.Clock()
		cancel()
		for _, ended := range all {
			testenv.Must(t, <-ended)
		}
		if took := f.Clock() - began; took > 5*time.Second {
			t.Errorf("the ends of Run took %v", took)
		}
	})
}
