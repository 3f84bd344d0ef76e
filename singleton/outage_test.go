package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// The run of a job and the work of a Daemon outlive an outage of 0.62 TTL that begins at the
// worst moment, right before a renewal, whatever its kind. Another replica waits meanwhile.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("job", func(t *testing.T) {
				t.Parallel()
				bubbleFleet(t, func(t *testing.T, f *fleet) {
					f.outlives(outage, func(c *lockcore.Client, work func(context.Context) error) func(context.Context) error {
						r, err := singleton.NewRunner(c, singleton.Config{TTL: 10 * time.Second})
						testenv.Must(t, err)
						testenv.Must(t, r.Add("draw", "* * * * *", func(ctx context.Context, _ singleton.Run) error { return work(ctx) }, singleton.JobConfig{}))
						return r.Run
					})
				})
			})
			t.Run("daemon", func(t *testing.T) {
				t.Parallel()
				bubbleFleet(t, func(t *testing.T, f *fleet) {
					f.outlives(outage, func(c *lockcore.Client, work func(context.Context) error) func(context.Context) error {
						d, err := singleton.NewDaemon(c, "feed", func(ctx context.Context, _ uint64) error { return work(ctx) }, singleton.DaemonConfig{TTL: 10 * time.Second})
						testenv.Must(t, err)
						return d.Run
					})
				})
			})
		})
	}
}

// outlives asserts that work on a replica outlives the outage.
func (f *fleet) outlives(outage func(*lockcoretest.Redis, func(error)) *testenv.Outage, start func(*lockcore.Client, func(context.Context) error) func(context.Context) error) {
	f.Helper()
	o := outage(f.bubble, func(err error) { testenv.Must(f.T, err) })
	began, lost := make(chan struct{}, 100), make(chan error, 100)
	ctx, cancel := context.WithCancel(f.Context())
	run := func(c *lockcore.Client) (done chan error) {
		run := start(c, func(work context.Context) error {
			began <- struct{}{}
			<-work.Done()
			if ctx.Err() == nil {
				lost <- context.Cause(work)
			}
			return work.Err()
		})
		done = make(chan error, 1)
		go func() { done <- run(ctx) }()
		return done
	}
	first := run(f.client(o.Options, lockcore.Config{Identity: "a"}))
	<-began
	second := run(f.client(f.bubble.Options(), lockcore.Config{Identity: "b"}))
	f.pass(6660 * time.Millisecond) // renewed at 3.3 s, and to be at 6.7 s
	o.Last(6200 * time.Millisecond)
	f.pass(30 * time.Second)
	select {
	case err := <-lost:
		f.Errorf("the work ended: %v", err)
	case <-began:
		f.Error("the work began again")
	default:
	}
	cancel()
	testenv.Must(f.T, <-first)
	testenv.Must(f.T, <-second)
	o.Faults.Heal()
}
