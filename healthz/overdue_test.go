package healthz_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// TestMain keeps go-redis from printing errors that it also returns.
func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// drain is the DrainTimeout of the workers; tolerance is the time after the end of the
// drain or the lease at which the probe fails.
const (
	drain     = 3 * time.Second
	tolerance = 5 * time.Second
)

// stubborn is work that ignores its context.
type stubborn struct {
	client        *lockcore.Client
	began, leaves chan struct{}
}

func (s *stubborn) do() {
	close(s.began)
	<-s.leaves
}

// The Check of each kind of worker fits Overdue. It fails when the work continues past its
// drain (after a regular stop) or past its lease (after the connection to Redis is lost).
func TestOverdueWork(t *testing.T) {
	t.Parallel()
	type worker struct {
		check func(tolerance time.Duration) error
		run   func(ctx context.Context) error
	}
	workers := map[string]func(t *testing.T, s *stubborn) worker{
		"election": func(t *testing.T, s *stubborn) worker {
			t.Helper()
			elector, err := election.NewLeaderElector(s.client, "demo", election.Callbacks{
				OnStartedLeading: func(context.Context) { s.do() }, OnStoppedLeading: func() {},
			}, election.Config{DrainTimeout: drain})
			if err != nil {
				t.Fatal(err)
			}
			return worker{elector.Check, elector.Run}
		},
		"runner": func(t *testing.T, s *stubborn) worker {
			t.Helper()
			runner, err := singleton.NewRunner(s.client, singleton.Config{Drain: drain})
			if err != nil {
				t.Fatal(err)
			}
			work := func(context.Context, singleton.Run) error { s.do(); return nil }
			if err := runner.Add("draw", "@every 1h", work, singleton.JobConfig{}); err != nil {
				t.Fatal(err)
			}
			return worker{runner.Check, runner.Run}
		},
		"daemon": func(t *testing.T, s *stubborn) worker {
			t.Helper()
			daemon, err := singleton.NewDaemonRunner(s.client, "feed", func(context.Context) error { s.do(); return nil }, singleton.DaemonConfig{})
			if err != nil {
				t.Fatal(err)
			}
			return worker{daemon.Check, daemon.Run}
		},
	}
	for name, c := range map[string]struct {
		worker string
		lost   bool          // Redis is unreachable and the lease expires; otherwise Run is stopped
		ends   time.Duration // time until the work must have stopped, at most
		cause  string        // why the work must stop; empty: the work may continue without limit
	}{
		"an election past its drain": {worker: "election", ends: drain, cause: "DrainTimeout"},
		"an election past its lease": {worker: "election", lost: true, ends: 15 * time.Second, cause: "lease expired"},
		"a runner past its drain":    {worker: "runner", ends: drain, cause: "the runner is stopping"},
		"a runner past its lease":    {worker: "runner", lost: true, ends: 10 * time.Second, cause: "lease expired"},
		"a daemon past its lease":    {worker: "daemon", lost: true, ends: 10 * time.Second, cause: "lease expired"},
		// A daemon has no drain: its lease is renewed until the work returns.
		"a daemon that is stopped": {worker: "daemon", ends: drain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				redis := lockcoretest.NewRedis(t)
				client, err := lockcore.New(redis.Client(), lockcore.Config{})
				if err != nil {
					t.Fatal(err)
				}
				s := &stubborn{client: client, began: make(chan struct{}), leaves: make(chan struct{})}
				w := workers[c.worker](t, s)
				live := handler(t, healthz.Config{}, healthz.Overdue("work", w.check, tolerance))
				asks := func(when string, want int, contains string) {
					t.Helper()
					if code, body := get(live, http.MethodGet, "/livez"); code != want || !strings.Contains(body, contains) {
						t.Errorf("%s: %d %q, want %d with %q", when, code, body, want, contains)
					}
				}
				asks("before it runs", http.StatusOK, "ok")
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.run(ctx) }()
				<-s.began
				time.Sleep(10 * time.Minute)
				asks("while it works", http.StatusOK, "ok")
				if c.lost {
					redis.Faults().Partition()
				} else {
					stop()
				}
				time.Sleep(tolerance - time.Millisecond)
				asks("within the tolerance", http.StatusOK, "ok")
				time.Sleep(c.ends + time.Second)
				if c.cause == "" {
					time.Sleep(time.Hour)
					asks("while it stops", http.StatusOK, "ok")
				} else {
					asks("after the tolerance", http.StatusInternalServerError, "[-]work failed: reason withheld\n")
					if _, body := get(live, http.MethodGet, "/livez/work"); !strings.Contains(body, c.cause) {
						t.Errorf("/livez/work does not say %q: %s", c.cause, body)
					}
				}
				stop()
				close(s.leaves)
				synctest.Wait()
				asks("when it has returned", http.StatusOK, "ok")
				redis.Faults().Heal()
				if err := <-ended; err != nil {
					t.Errorf("Run: %v", err)
				}
				if err := client.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}
