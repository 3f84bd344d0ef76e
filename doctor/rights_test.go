package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// CheckRights tries the commands of the scripts of a use, and leaves nothing behind. That it finds each right that is
// missing, lockcore tests.
func TestCheckRights(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	for _, use := range doctor.Uses() {
		check := func(rule string) error {
			return doctor.CheckRights(t.Context(), e.ClientWith(e.As(use+rule, "~noonlock:*", "&noonlock:*", "+@all", rule), lockcore.Config{}), "orders", use)
		}
		for rule, uses := range map[string]string{
			"-zscore": "mutex rwmutex election partitions", "-zmscore": "rwmutex", "-pexpireat": "rwmutex partitions", "-ltrim": "election job", "-persist": "job", "-scan": "",
		} {
			err := check(rule)
			if needed := slices.Contains(strings.Fields(uses), use); (err != nil) != needed || lockcore.IsTemporary(err) || needed && !strings.Contains(err.Error(), strings.ToUpper(rule[1:])) {
				t.Errorf("%s with %s: %v", use, rule, err)
			}
		}
	}
	if keys := e.Raw.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys are left: %q", keys)
	}
	c := e.ClientWith(e.Direct(), lockcore.Config{})
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "orders", "everything"), noonlock.ErrConfig)
	testenv.MustIs(e, doctor.CheckRights(t.Context(), c, "a b", doctor.UseMutex), noonlock.ErrConfig)
}
