package explorer

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// The explored requests are exactly those that lockcore sends.
func TestScriptsAreThoseThatLockcoreSends(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]string{} // SHA1 -> script
	for _, name := range []string{
		"mutex_acquire", "mutex_renew", "mutex_leave", "owned_acquire", "owned_renew", "owned_leave", "owned_downgrade",
		"job_claim", "job_renew", "job_complete", "job_abandon", "job_pause",
	} {
		s, err := l.load(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha1.Sum([]byte(wire.Naming(s.source)))
		missing[hex.EncodeToString(sum[:])] = name
	}
	m := miniredis.RunT(t)
	var mu sync.Mutex
	renewed := make(chan struct{}) // every kind of lease was renewed
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
		mu.Lock()
		defer mu.Unlock()
		if cmd == "EVALSHA" && missing[args[0]] != "" {
			name := missing[args[0]]
			delete(missing, args[0])
			renews := func(name string) bool { return strings.HasSuffix(name, "_renew") }
			if renews(name) && !slices.ContainsFunc(names(missing), renews) {
				close(renewed)
			}
		}
		return false
	})
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	defer rdb.Close()
	c, err := lockcore.New(rdb, lockcore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	cfg := lockcore.LeaseConfig{TTL: time.Second, RenewInterval: 10 * time.Millisecond}
	mutex, err := c.Mutex("mutex", cfg)
	must(t, err)
	first, err := mutex.TryLock(ctx)
	must(t, err)
	rw, err := c.RWMutex("rw", "owner", cfg)
	must(t, err)
	second, err := rw.TryLock(ctx)
	must(t, err)
	must(t, rw.Downgrade(ctx, second))
	job, err := singleton.NewJob(c, "job")
	must(t, err)
	runner, err := singleton.NewRunner(c, singleton.Config{TTL: time.Second, Drain: time.Millisecond})
	must(t, err)
	running := make(chan struct{}, 1)
	stop, cancel := context.WithCancel(ctx)
	must(t, runner.Add("job", "@every 1s", func(ctx context.Context, _ singleton.Run) error {
		select {
		case <-renewed: // the first run ends, the next one is abandoned
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		default:
			<-renewed
			return nil
		}
	}, singleton.JobConfig{}))
	stopped := make(chan error, 1)
	go func() { stopped <- runner.Run(stop) }()
	<-running
	must(t, job.Pause(ctx))
	cancel()
	must(t, <-stopped)
	must(t, first.Unlock(ctx))
	must(t, second.Unlock(ctx))
	must(t, c.Close(ctx))
	mu.Lock()
	defer mu.Unlock()
	if len(missing) > 0 {
		t.Errorf("lockcore does not send these as they are explored: %v", names(missing))
	}
}

func names(m map[string]string) []string {
	var all []string
	for _, name := range m {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
