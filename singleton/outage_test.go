package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// The run of a job and the work of a daemon outlive an outage of 0.62 TTL that begins at the
// worst moment, right before a renewal. Another replica waits meanwhile. The other kinds of
// outages are tested in lockcore.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	for kind, start := range starters(10 * time.Second) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(_ *testing.T, f *fleet) { f.outlives(testenv.Outages()["hanging"](f.Env), start) })
		})
	}
}

// A starter returns the Run of a replica that does the work.
type starter func(t *testing.T, c *lockcore.Client, work func(context.Context) error) (run func(context.Context) error)

// starters returns those of a job and of a daemon.
func starters(ttl time.Duration) map[string]starter {
	return map[string]starter{
		"job": func(t *testing.T, c *lockcore.Client, work func(context.Context) error) func(context.Context) error {
			r, err := singleton.NewRunner(c, singleton.Config{TTL: ttl})
			testenv.Must(t, err)
			testenv.Must(t, r.Add("draw", "* * * * *", func(ctx context.Context, _ singleton.Run) error { return work(ctx) }, singleton.JobConfig{}))
			return r.Run
		},
		"daemon": func(t *testing.T, c *lockcore.Client, work func(context.Context) error) func(context.Context) error {
			d, err := singleton.NewDaemonRunner(c, "feed", func(ctx context.Context) error { return work(ctx) }, singleton.DaemonConfig{TTL: ttl})
			testenv.Must(t, err)
			return d.Run
		},
	}
}

// work starts a replica. began and lost report each beginning of the work, and why it ended
// before ctx.
func (f *fleet) work(ctx context.Context, start starter, c *lockcore.Client, began chan struct{}, lost chan error) (done chan error) {
	f.Helper()
	run := start(f.T, c, func(work context.Context) error {
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

// outlives asserts that the work on a replica outlives the outage.
func (f *fleet) outlives(o *testenv.Outage, start starter) {
	f.Helper()
	began, lost := make(chan struct{}, 100), make(chan error, 100)
	ctx, cancel := context.WithCancel(f.Context())
	first := f.work(ctx, start, f.ClientWith(o.Options, lockcore.Config{Identity: "a"}), began, lost)
	<-began
	second := f.work(ctx, start, f.Client("b"), began, lost)
	f.Pass(6660 * time.Millisecond) // it was renewed after 3.3 s, and will be after 6.7 s
	o.Last(6200 * time.Millisecond)
	f.Pass(30 * time.Second)
	select {
	case err := <-lost:
		f.Errorf("the work ended: %v", err)
	case <-began:
		f.Error("the work began again")
	default:
	}
	cancel()
	testenv.Must(f, <-first)
	testenv.Must(f, <-second)
	o.Faults.Heal()
}
