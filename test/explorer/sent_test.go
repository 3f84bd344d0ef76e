package explorer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testing/testenv"
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
			switch cmd {
			case "EVALSHA":
				sent = append(sent, args[0])
			case "EVAL":
				sent = append(sent, sumOf(args[0]))
			}
			return false
		})
		ctx, cfg := t.Context(), lockcore.LeaseConfig{TTL: time.Second}
		c := testenv.Call(lockcore.New(r.Client(), lockcore.Config{})).Must(t)
		m := testenv.Call(c.Mutex("mutex", cfg)).Must(t)
		first := testenv.Call(m.TryLock(ctx)).Must(t)
		rw := testenv.Call(c.RWMutex("rw", "owner", cfg)).Must(t)
		second := testenv.Call(rw.TryLock(ctx)).Must(t)
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
