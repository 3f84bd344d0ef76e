package lockcore_test

import (
	"strings"
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

// The error of a command that fails names it. A token counter of another type is an error, unless it is not read.
// Mutant: the first error is ignored.
func TestRightsAreTried(t *testing.T) {
	onBoth(t, func(e *env) {
		never, fence := e.key("orders", "never"), e.key("orders", "fence")
		source, err := lockcore.ScriptSource("lock_rights")
		must(e, err)
		for _, key := range []string{never, fence} {
			must(e, e.Raw.Del(e.Context(), never, fence).Err())
			must(e, e.Raw.RPush(e.Context(), key, "spoilt").Err())
			for calls, says := range map[string]map[string]string{
				"TIME\nGET *\nHDEL * f":         {never: ": GET"},
				"LRANGE * 0 0\nHDEL * f":        {never: ": HDEL"},
				"TIME\nLRANGE * 0 0\nGET fence": {fence: ": GET"},
			} {
				answer, err := e.Raw.Eval(e.Context(), source, []string{never, fence}, calls).Result()
				if want := says[key]; want == "" && answer != int64(1) || want != "" && (err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), want)) {
					e.Errorf("%s is spoilt, %q: %v, %v, want %q", key, calls, answer, err, want)
				}
			}
		}
	})
}
