package explorer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The explored requests are exactly those that lockcore sends.
func TestScriptsAreThoseThatLockcoreSends(t *testing.T) {
	l := newLibrary(t)
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		var mu sync.Mutex
		var sent []string
		r.Server().Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
			mu.Lock()
			defer mu.Unlock()
			if cmd == "EVALSHA" {
				sent = append(sent, args[0])
			}
			return false
		})
		ctx, cfg := t.Context(), lockcore.LeaseConfig{TTL: time.Second}
		c, err := lockcore.New(r.Client(), lockcore.Config{})
		must(t, err)
		m, err := c.Mutex("mutex", cfg)
		must(t, err)
		first, err := m.TryLock(ctx)
		must(t, err)
		rw, err := c.RWMutex("rw", "owner", cfg)
		must(t, err)
		second, err := rw.TryLock(ctx)
		must(t, err)
		must(t, rw.Downgrade(ctx, second))
		time.Sleep(time.Second) // both are renewed
		must(t, first.Unlock(ctx))
		must(t, second.Unlock(ctx))
		must(t, c.Close(ctx))
		mu.Lock()
		defer mu.Unlock()
		for _, name := range slices.Concat(mutex{}.scripts(), owned{}.scripts()) {
			if !slices.Contains(sent, l.load(name, nil).sum()) {
				t.Errorf("lockcore does not send %s as it is explored", name)
			}
		}
	})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	testenv.Must(tb, err)
}
