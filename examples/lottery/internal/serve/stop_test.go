package serve

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

const drain = 3 * time.Second

// stage is a replica in a bubble of virtual time that is in the middle of a draw.
type stage struct {
	*Replica
	redis *lockcoretest.Redis
	stop  context.CancelFunc // SIGTERM
	ended chan error         // the result of Run
}

// raise returns when the replica draws. during is the work of the draw.
func raise(t *testing.T, drain time.Duration, during func(ctx context.Context) error) *stage {
	t.Helper()
	return raiseLogging(t, logr.Discard(), drain, during)
}

// raiseLogging is raise with a logger.
func raiseLogging(t *testing.T, log logr.Logger, drain time.Duration, during func(ctx context.Context) error) *stage {
	t.Helper()
	s := &stage{redis: lockcoretest.NewRedis(t), ended: make(chan error, 1)}
	dsn, err := store.ParseDSN("sqlite:" + filepath.Join(t.TempDir(), "lottery.db"))
	if err != nil {
		t.Fatal(err)
	}
	list := entrants.FS(fstest.MapFS{"list.csv": {Data: []byte("id,eligible\na,true\nb,true\n")}}, "list.csv")
	begun, server := time.Now(), s.redis.Options()
	s.Replica, err = newReplica(t.Context(), Config{
		Redis: []*redis.UniversalOptions{{
			Addrs: []string{server.Addr}, Dialer: server.Dialer,
			DisableIdentity: server.DisableIdentity, MaintNotificationsConfig: server.MaintNotificationsConfig,
		}},
		Database: dsn, Entrants: list, Schedule: "@every 1m", Location: time.UTC,
		Winners: 1, Lease: time.Second, Drain: drain, Logger: log,
	}, func() time.Duration { return time.Since(begun) })
	if err != nil {
		t.Fatal(err)
	}
	drawing := make(chan struct{})
	s.drawing.Written = func(ctx context.Context, _ *sql.Tx, _ singleton.Run, _ []string) error {
		close(drawing)
		return during(ctx)
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.ended <- s.Run(ctx) }()
	<-drawing
	return s
}

// ask requests a page.
func (s *stage) ask(t *testing.T, path string) (code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// total returns the sum of a metric's series on a page.
func total(t *testing.T, page, metric string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, metric+"{"); ok {
			_, number, _ := strings.Cut(rest, "} ")
			value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += value
		}
	}
	return sum
}

// Whatever Redis and the draw in progress do, a stopped replica ends within its drain and
// Ending.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	dead := map[string]func(*testing.T, *lockcoretest.Faults){
		"hangs": func(_ *testing.T, network *lockcoretest.Faults) { network.Partition() },
		"is gone": func(t *testing.T, network *lockcoretest.Faults) {
			t.Helper()
			network.Inject(t, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
			network.Cut()
		},
		"takes requests and says nothing": func(t *testing.T, network *lockcoretest.Faults) {
			t.Helper()
			network.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
		},
		"is there": func(*testing.T, *lockcoretest.Faults) {},
	}
	draws := map[string]struct {
		do   func(ctx context.Context, released <-chan struct{}) error
		want error
	}{
		"is done at once":        {do: func(context.Context, <-chan struct{}) error { return nil }},
		"listens to its context": {do: func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return context.Cause(ctx) }},
		"is done late": {do: func(context.Context, <-chan struct{}) error {
			time.Sleep(drain + recordWithin - time.Millisecond)
			return nil
		}},
		"never stops": {do: func(_ context.Context, released <-chan struct{}) error { <-released; return nil }, want: ErrStuck},
	}
	for redis, dies := range dead {
		for draw, d := range draws {
			t.Run("Redis "+redis+", the draw "+draw, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					asked, released := make(chan struct{}), make(chan struct{})
					s := raise(t, drain, func(ctx context.Context) error {
						<-asked
						return d.do(ctx, released)
					})
					dies(t, s.redis.Faults())
					begun := time.Now()
					s.stop()
					close(asked)
					err := <-s.ended
					took := time.Since(begun)
					close(released)
					s.redis.Faults().Close()
					t.Logf("it took %s of virtual time", took)
					if took > drain+Ending {
						t.Errorf("it took %s to stop; at most %s is promised", took, drain+Ending)
					}
					if !errors.Is(err, d.want) {
						t.Errorf("Run returned %v, want %v", err, d.want)
					}
				})
			})
		}
	}
}

// A logger that blocks, such as a full pipe, keeps neither a draw from being recorded nor the
// replica from stopping.
func TestFault63_BlockedLogger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		blocks, free, asked := atomic.Bool{}, make(chan struct{}), make(chan struct{})
		log := funcr.New(func(string, string) {
			if blocks.Load() {
				<-free
			}
		}, funcr.Options{})
		s := raiseLogging(t, log, drain, func(context.Context) error {
			<-asked
			return nil
		})
		blocks.Store(true)
		close(asked)
		job, err := singleton.NewJob(s.client, noon.Job)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if runs, err := job.Runs(t.Context(), 1); err != nil || len(runs) != 1 || runs[0].Outcome != singleton.OutcomeSucceeded {
			t.Errorf("the ledger has %+v, %v; want the draw", runs, err)
		}
		begun := time.Now()
		s.stop()
		select {
		case err := <-s.ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(drain + Ending):
			t.Errorf("the replica continues %s after it was stopped", time.Since(begun))
		}
		close(free)
	})
}

// Without a drain, the draw in progress must stop immediately, and is left to another replica.
func TestNoDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := raise(t, 0, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		begun := time.Now()
		s.stop()
		if err := <-s.ended; err != nil || time.Since(begun) != 0 {
			t.Errorf("Run returned %v after %s of virtual time", err, time.Since(begun))
		}
	})
}

// The default is below the 30 s after which Kubernetes kills a process.
func TestEndingIsShort(t *testing.T) {
	t.Parallel()
	if Ending > 10*time.Second {
		t.Errorf("Ending is %s; with the default drain of 15s that is more than 25s", Ending)
	}
}

// Only a draw that continues after its drain or its lease has ended fails liveness, since a
// restart helps then.
func TestLiveness(t *testing.T) {
	t.Parallel()
	const check = "draw"
	for name, end := range map[string]func(*stage){
		"drain": func(s *stage) {
			s.stop()
			time.Sleep(drain)
		},
		"lease": func(s *stage) { // renewals fail; the last one was at most a third of a TTL ago
			s.redis.Faults().Partition()
			time.Sleep(time.Second / 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				released := make(chan struct{})
				s := raise(t, drain, func(context.Context) error {
					<-released
					return nil
				})
				if code, text := s.ask(t, "/livez?verbose"); code != http.StatusOK || !strings.Contains(text, "[+]"+check+" ok") {
					t.Errorf("in mid-draw: %d %s", code, text)
				}
				end(s)
				time.Sleep(stopWithin - 10*time.Millisecond)
				if code, text := s.ask(t, "/livez"); code != http.StatusOK {
					t.Errorf("within what it may take to stop: %d %s", code, text)
				}
				time.Sleep(time.Second)
				code, text := s.ask(t, "/livez")
				if code != http.StatusInternalServerError || !strings.Contains(text, "[-]"+check+" failed: reason withheld") || strings.Count(text, "[-]") != 1 {
					t.Errorf("beyond that: %d %s; want %s alone to fail", code, text, check)
				}
				if _, text := s.ask(t, "/livez/"+check); !strings.Contains(text, "although its context has ended") {
					t.Errorf("/livez/%s gives no reason: %s", check, text)
				}
				close(released)
				synctest.Wait()
				if code, text := s.ask(t, "/livez"); code != http.StatusOK {
					t.Errorf("when it has returned: %d %s", code, text)
				}
				s.stop()
				s.redis.Faults().Heal()
				if err := <-s.ended; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// Redis or the database may be unavailable for any time.
func TestLivenessWithoutServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := raise(t, drain, func(context.Context) error { return nil })
		synctest.Wait()
		if code, text := s.ask(t, "/readyz"); code != http.StatusOK {
			t.Errorf("/readyz: %d %s", code, text)
		}
		_, before := s.ask(t, "/metrics")
		s.redis.Faults().Partition()
		s.drawing.Store.Close()
		time.Sleep(time.Minute)
		// The outage itself is reported, not only the lack of success.
		if _, page := s.ask(t, "/metrics"); total(t, page, "noonlock_script_errors_total") <= total(t, before, "noonlock_script_errors_total") {
			t.Errorf("a minute without Redis, and no more calls of scripts have failed:\n%s", page)
		}
		time.Sleep(time.Hour)
		for path, want := range map[string]int{
			"/livez": http.StatusOK, "/readyz": http.StatusInternalServerError,
			"/readyz/redis": http.StatusInternalServerError, "/readyz/database": http.StatusInternalServerError,
			"/readyz/stopping": http.StatusOK, "/healthz": http.StatusInternalServerError, "/metrics": http.StatusOK,
		} {
			if code, text := s.ask(t, path); code != want {
				t.Errorf("%s: %d %s; want %d", path, code, text, want)
			}
		}
		s.stop()
		synctest.Wait()
		if code, text := s.ask(t, "/readyz/stopping"); code != http.StatusInternalServerError || !strings.Contains(text, "stopping") {
			t.Errorf("/readyz/stopping: %d %s", code, text)
		}
		if err := <-s.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
