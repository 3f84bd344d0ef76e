package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testenv"
)

// Every command is tried, and leaves neither a key nor a change behind. The error of a command
// that fails names it. A token counter of another type is an error.
// Mutants: a command is tried on the counter; the first error is ignored.
func TestRightsAreTried(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		source, err := lock.RightsSource(lock.LuaFiles)
		testenv.Must(e, err)
		const never, fence = "noonlock:{orders}:never", "noonlock:{orders}:fence"
		try := func(calls, want string) {
			e.Helper()
			answer, err := e.Raw.Eval(e.Context(), source, []string{never, fence}, calls).Result()
			switch {
			case want == "" && (err != nil || answer != int64(1)):
				e.Errorf("%q: %v, %v", calls, answer, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), want)):
				e.Errorf("%q: %v, want WRONGTYPE and %q in it", calls, err, want)
			}
		}
		testenv.Must(e, e.Raw.Set(e.Context(), fence, "5", time.Hour).Err())
		for command, calls := range lock.Harmless {
			try(calls, "")
			if e.Exists(never) {
				e.Errorf("%s leaves a key behind", command)
			}
		}
		if left := e.PTTL(fence); e.Raw.Get(e.Context(), fence).Val() != "5" || left < time.Minute {
			e.Errorf("the counter was changed; it ends in %v", left)
		}
		testenv.Must(e, e.Raw.RPush(e.Context(), never, "spoilt").Err())
		try("TIME\nGET *\nHDEL * f", ": GET")
		try("LRANGE * 0 0\nHDEL * f", ": HDEL")
		testenv.Must(e, e.Raw.Del(e.Context(), never, fence).Err())
		try("GET *", "")
		testenv.Must(e, e.Raw.RPush(e.Context(), fence, "spoilt").Err())
		try("TIME\nGET *\nGET fence", "WRONGTYPE")
		try("GET *", "") // as for locks that do not read the counter
	})
}
