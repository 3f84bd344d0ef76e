package chaos

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// TestPeers runs the mutexes of other libraries with the nemesis and the seed of ours, without losses of data, and
// counts what goes wrong for a thousand leases. PEERS=1 selects it.
func TestPeers(t *testing.T) {
	if os.Getenv("PEERS") == "" {
		t.Skip("PEERS is not set")
	}
	lasts, seed := options(t)
	binary, err := plain()
	must(t, err)
	for _, name := range []string{"noonlock", "redislock", "redsync", "redsync on five servers", "rueidislock", "SET NX"} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cfg := history.Config{
				Seed: seed, TTL: time.Second, Every: time.Second, Holds: 30, Slow: 3 * time.Millisecond,
				Kinds: []string{history.Mutex},
			}
			start := one
			cfg.Library, _ = strings.CutSuffix(name, " on five servers")
			if cfg.Library != name {
				start = quorum
			}
			if name == "noonlock" {
				cfg.Library = ""
			}
			top := start(t, cfg.TTL)
			top.faults = slices.DeleteFunc(top.faults, func(f fault) bool {
				return f.class == "D" || top.quorum && (f.name == "flush" || f.name == "restart empty")
			})
			w := newWorld(t, binary, top, 5, false, cfg)
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			newNemesis(w, seed).run(ctx, 3)
			retry.Sleep(t.Context(), 4*cfg.TTL, nil)
			v := w.judge()
			for rule, n := range v.Rules() {
				servers.Count(t, "%s: %s, %d times for 1,000 leases", name, rule, 1000*n/max(1, v.Leases[history.Mutex]))
			}
			servers.Count(t, "%s", summary(name, seed, v))
		})
	}
}
