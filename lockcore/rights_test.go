package lockcore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

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
