package lockcore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Every command is tried, and leaves neither a key nor a change behind. The error of a command
// that fails names it. A token counter of another type is an error.
// Mutants: a command is tried on the counter; the first error is ignored.
func TestRightsAreTried(t *testing.T) {
	onBoth(t, func(e *env) {
		source, err := lockcore.ScriptSource("lock_rights")
		must(e, err)
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
		must(e, e.Raw.Set(e.Context(), fence, "5", time.Hour).Err())
		for command, calls := range lockcore.HarmlessCalls {
			try(calls, "")
			if e.Exists(never) {
				e.Errorf("%s leaves a key behind", command)
			}
		}
		if left := e.PTTL(fence); e.Raw.Get(e.Context(), fence).Val() != "5" || left < time.Minute {
			e.Errorf("the counter was changed; it ends in %v", left)
		}
		must(e, e.Raw.RPush(e.Context(), never, "spoilt").Err())
		try("TIME\nGET *\nHDEL * f", ": GET")
		try("LRANGE * 0 0\nHDEL * f", ": HDEL")
		must(e, e.Raw.Del(e.Context(), never, fence).Err())
		try("GET *", "")
		must(e, e.Raw.RPush(e.Context(), fence, "spoilt").Err())
		try("TIME\nGET *\nGET fence", "WRONGTYPE")
		try("GET *", "") // as for locks that do not read the counter
	})
}

// CheckRights finds each right that the scripts of a kind need, and no other. It leaves nothing
// behind.
func TestCheckRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	notTried := strings.Fields("evalsha eval subscribe ping publish") // eval runs the trial itself
	for kind, needed := range map[lockcore.LockKind][]string{
		lockcore.LockMutex: rights, lockcore.LockReadWrite: ownedRights,
	} {
		check := func(without string) error {
			user := string(kind) + "-" + without
			return e.ClientWith(e.As(user, allowed(needed, without)...), lockcore.Config{}).CheckRights(t.Context(), "orders", kind)
		}
		if err := check(""); err != nil {
			t.Errorf("%s with the documented rights: %v", kind, err)
		}
		for _, right := range needed {
			if slices.Contains(notTried, right) {
				continue
			}
			if err := check(right); err == nil || lockcore.IsTemporary(err) || !strings.Contains(err.Error(), strings.ToUpper(right)) {
				t.Errorf("%s without %s: %v", kind, right, err)
			}
		}
	}
	if keys := e.Raw.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys are left: %q", keys)
	}
	c := e.Client("a")
	testenv.MustIs(e, c.CheckRights(t.Context(), "orders", lockcore.LockForeign), lockcore.ErrConfig)
	testenv.MustIs(e, c.CheckRights(t.Context(), "job/draw", lockcore.LockMutex), lockcore.ErrConfig)
}
