package lockcore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// inspectRights are the rights that Inspect needs. forceRights are the additional ones of
// ForceRelease.
var (
	inspectRights = []string{"evalsha", "eval", "time", "type", "pttl", "get", "zrange", "zscore", "hget"}
	forceRights   = []string{"del", "hset", "pexpire", "zmscore", "zadd", "zrem", "zrangebyscore", "zrevrangebyscore", "pexpireat", "publish", "lpush", "ltrim"}
)

// A user with exactly the documented rights can inspect and force-release locks of all
// kinds. No right is superfluous.
func TestFault60_ACLOfInspectAndForceRelease(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	user := func(name, without string, rights ...string) *lockcore.Client {
		return e.ClientWith(e.As(name, allowed(rights, without)...), lockcore.Config{Identity: name})
	}
	a, b := e.Client("a"), e.Client("b")
	held := 0
	// hold acquires locks of all kinds, and queues a waiter for each.
	hold := func() (names []string) {
		held++
		long, short := ttl(time.Hour), ttl(time.Minute)
		for kind, holds := range map[string][]locker{
			"m": {e.mutex(a, fmt.Sprint("m", held), long)},
			"x": {e.reentrant(a, fmt.Sprint("x", held), "one", long), e.reentrant(a, fmt.Sprint("x", held), "one", short)},
			"s": {reads{e.rw(a, fmt.Sprint("s", held), fmt.Sprint("one", held), long)}, reads{e.rw(b, fmt.Sprint("s", held), fmt.Sprint("two", held), short)}},
		} {
			for _, m := range holds {
				e.try(m)
			}
			name := fmt.Sprint(kind, held)
			must(e, e.Raw.ZAdd(t.Context(), e.key(name, "queue"), redis.Z{Score: 1, Member: unknown}).Err())
			must(e, e.Raw.HSet(t.Context(), e.key(name, "seen"), unknown, 1).Err())
			names = append(names, name)
		}
		return names
	}
	refusals := func(name string) (n int) {
		log, err := e.Raw.ACLLog(t.Context(), 1000).Result()
		must(e, err)
		for _, l := range log {
			if l.Username == name {
				n++
			}
		}
		return n
	}
	all := slices.Concat(inspectRights, forceRights)
	looker, forcer := user("looker", "", inspectRights...), user("forcer", "", all...)
	for _, name := range hold() {
		if seen := e.inspect(looker, name); len(seen.Holders) == 0 || len(seen.Waiters) != 1 {
			e.Errorf("%s: %+v", name, seen)
		}
		if _, err := e.force(forcer, name); err != nil || e.Exists(e.key(name, "lock")) {
			e.Errorf("%s: ForceRelease: %v, or the lock is there still", name, err)
		}
	}
	if n := refusals("looker") + refusals("forcer"); n != 0 {
		e.Errorf("%d refusals with the documented rights", n)
	}
	for i, right := range all {
		name := fmt.Sprint("u", i)
		if right == "eval" {
			must(e, e.Raw.ScriptFlush(t.Context()).Err()) // so that the source is sent
		}
		less := user(name, right, all...)
		for _, lock := range hold() {
			seen, err := less.Inspect(t.Context(), lock)
			if len(seen.Holders) == 2 && err == nil {
				one := seen // of the one that ends last, so that the end is brought forward
				one.Holders = seen.Holders[1:]
				_, _ = less.ForceRelease(t.Context(), one, lockcore.Operator{})
			}
			_, _ = less.ForceRelease(t.Context(), seen, lockcore.Operator{})
		}
		if refusals(name) == 0 {
			e.Errorf("%s is documented, and not needed", right)
		}
	}
}
