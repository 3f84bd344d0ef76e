package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// rights are the commands that a Client needs, in addition to the keys and channels of its
// prefix.
var rights = []string{
	"evalsha", "eval", // with the source where the server does not know it
	"subscribe", "ping", "publish", // for grant messages: without them a waiter is slow
	// In the scripts:
	"exists", "get", "set", "del", "pexpire", "pttl", "time",
	"zadd", "zrange", "zrem", "zscore", "hset", "hget", "hdel",
}

// allowed returns the rules for the keys and channels of the prefix and for all given
// rights but one.
func allowed(rights []string, without string) []string {
	rules := []string{"~noonlock:*", "resetchannels", "&noonlock:ch:*"}
	for _, r := range rights {
		if r != without {
			rules = append(rules, "+"+r)
		}
	}
	return rules
}

// A user with exactly the documented rights can use a mutex, and no right is superfluous.
func TestACL(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	user := func(name, without string) *redis.Options { return e.As(name, allowed(rights, without)...) }
	// use does everything that a Client does with a mutex.
	use := func(name string, opt *redis.Options) error {
		a := e.ClientWith(opt, lockcore.Config{Identity: "a"})
		b := e.ClientWith(opt, lockcore.Config{Identity: "b"})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cfg := ttl(3 * time.Second)
		lease, err := e.mutex(a, name, cfg).TryLock(ctx)
		if err != nil {
			return err
		}
		waiter := make(chan error, 1)
		go func() {
			next, err := e.mutex(b, name, cfg).Lock(ctx)
			if err == nil {
				err = next.Unlock(ctx)
			}
			waiter <- err
		}()
		e.Until("it is queued or has failed", func() bool {
			return e.queueLength(name) == 1 || len(waiter) == 1
		})
		if _, err := e.mutex(b, name, cfg).TryLock(ctx); !errors.Is(err, lockcore.ErrNotAcquired) {
			return err
		}
		quitter, quit := context.WithCancel(ctx)
		quit()
		_, _ = e.mutex(b, name, cfg).Lock(quitter) // its error does not matter
		e.Pass(1300 * time.Millisecond)            // a renewal
		if lease.Context().Err() != nil {
			return context.Cause(lease.Context())
		}
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
		return <-waiter
	}
	if err := use("all", user("all", "")); err != nil {
		t.Fatalf("with the documented rights: %v", err)
	}
	if log, err := e.Raw.ACLLog(t.Context(), 10).Result(); err != nil || len(log) > 0 {
		for _, l := range log {
			t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
		}
	}
	for i, right := range rights {
		t.Run("without "+right, func(t *testing.T) {
			if right == "eval" {
				// Not concurrently, so that no other Client sends the source.
				must(e, e.Raw.ScriptFlush(t.Context()).Err())
			} else {
				t.Parallel()
			}
			name := fmt.Sprint("u", i)
			err := use(name, user(name, right))
			e.needed(t, right, name, err)
		})
	}
}

// needed asserts that a user without a right was refused a command. err is the result of
// that user's use of the locks.
func (e *env) needed(t *testing.T, right, user string, err error) {
	t.Helper()
	refused := 0
	log, lerr := e.Raw.ACLLog(t.Context(), 1000).Result()
	must(e, lerr)
	for _, l := range log {
		if l.Username == user {
			refused++
		}
	}
	switch right {
	case "publish", "subscribe":
		if err != nil {
			t.Errorf("a waiter must be slow without it, not wrong: %v", err)
		}
	case "ping": // sent on a subscription that was silent for long
		return
	default:
		if err == nil {
			t.Error("not needed at all")
		}
	}
	if refused == 0 {
		t.Errorf("the server refused nothing: not needed (error %v)", err)
	}
}

// Every key that a script uses is among its KEYS. The scripts run as a user without access
// to other keys.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	listener := e.Raw.Subscribe(t.Context(), "noonlock:ch:ALIVE")
	defer listener.Close()
	keys := e.scriptKeys("orders")
	narrow := e.Narrowed("narrow", keys)
	if err := narrow.Get(t.Context(), "other").Err(); !redis.HasErrorPrefix(err, "NOPERM") {
		t.Fatalf("the user is not narrow: %v", err)
	}
	runs := 0
	for _, state := range mutexStates() {
		for script, args := range map[string][][]any{
			"mutex_acquire": {{me, 60000, "try"}, {me, 60000, "join"}, {me, 60000, "look"}},
			"mutex_leave":   {{me, 0}, {me, 300000}},
			"mutex_renew":   {{me, 60000, 60000}},
		} {
			source, err := lockcore.ScriptSource(script)
			must(e, err)
			for _, few := range args {
				e.establish("orders", state)
				given := keys
				if script == "mutex_renew" {
					given = keys[:2]
				}
				if err := narrow.Eval(t.Context(), source, given, argv(script, few...)...).Err(); err != nil {
					t.Errorf("%s %v with %v: %v", script, few, state, err)
				}
				runs++
			}
		}
	}
	if log := e.Raw.ACLLog(t.Context(), 100).Val(); len(log) != 1 { // the Get above
		t.Errorf("%d refusals in %d runs: %+v", len(log)-1, runs, log)
	}
}
