package lock_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Every command is tried, and leaves neither a key nor a change behind.
func TestCommandsAreHarmless(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		source := testenv.Call(lock.RightsSource(lock.LuaFiles)).Must(e)
		const never, fence = "noonlock:{orders}:never", "noonlock:{orders}:fence"
		testenv.Must(e, e.Raw.Set(e.Context(), fence, "5", time.Hour).Err())
		for command, calls := range lock.Harmless {
			answer, err := e.Raw.Eval(e.Context(), source, []string{never, fence}, calls).Result()
			if err != nil || answer != int64(1) || e.Exists(never) {
				e.Errorf("%s: %v, %v, or it leaves a key behind", command, answer, err)
			}
		}
		if left := e.PTTL(fence); e.Raw.Get(e.Context(), fence).Val() != "5" || left < time.Minute {
			e.Errorf("the counter was changed; it ends in %v", left)
		}
	})
}
