package singleton_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// onceRights are the ACL rights that the replicas of a job need, in addition to keys and channels.
var onceRights = strings.Fields("evalsha eval time lrange subscribe unsubscribe ping publish" +
	" exists get set hget hset hdel hmget hkeys hgetall hexists hlen lpush ltrim llen pttl pexpire persist")

// CheckRights finds each right that replicas of a job need, and leaves nothing behind.
func TestCheckRights(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	notTried := strings.Fields("evalsha eval subscribe unsubscribe ping publish")
	for _, without := range append([]string{""}, onceRights...) {
		if slices.Contains(notTried, without) {
			continue
		}
		rules := []string{"~noonlock:*", "resetchannels", "&noonlock:*", "-@all"}
		for _, r := range onceRights {
			if r != without {
				rules = append(rules, "+"+r)
			}
		}
		j, err := singleton.NewJob(e.ClientWith(e.As("u-"+without, rules...), lockcore.Config{}), "draw")
		testenv.Must(t, err)
		err = j.CheckRights(t.Context())
		switch {
		case without == "" && err != nil:
			t.Errorf("with all rights: %v", err)
		case without != "" && (err == nil || !strings.Contains(err.Error(), strings.ToUpper(without))):
			t.Errorf("without %s: %v", without, err)
		}
	}
	if keys := e.Raw.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys are left: %q", keys)
	}
}
