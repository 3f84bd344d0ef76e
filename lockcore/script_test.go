package lockcore_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	testenv.Scripts{Files: lockcore.ScriptFiles()}.CheckHeaders(t)
}

// If a counter could not be seeded (rights were missing) or was changed by others, it is
// seeded at the next call. Tokens are never small.
func TestTokenOfASpoiltCounter(t *testing.T) {
	onBoth(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", ttl(5*time.Second))
		for _, spoilt := range []string{"1", "a text"} {
			lease := e.try(m)
			e.unlock(lease)
			e.Pass(time.Millisecond)
			must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), spoilt, 0).Err())
			next := e.try(m)
			if next.Token() <= lease.Token() {
				e.Errorf("%q: token %d after %d", spoilt, next.Token(), lease.Token())
			}
			if e.Raw.PTTL(e.Context(), e.key("orders", "fence")).Val() <= 0 {
				e.Errorf("%q: the counter has no TTL", spoilt)
			}
			e.unlock(next)
		}
	})
}
