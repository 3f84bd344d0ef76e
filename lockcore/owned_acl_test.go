package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// ownedRights are the rights that a Client needs for locks with owners.
var ownedRights = []string{
	"evalsha", "eval", "subscribe", "ping", "publish", // as for a mutex
	// In the scripts:
	"exists", "get", "set", "del", "pexpire", "pexpireat", "pttl", "time",
	"zadd", "zrange", "zrem", "zscore", "zmscore", "zcard", "zcount", "zrangebyscore", "zrevrangebyscore",
	"hset", "hget", "hdel",
}

// A user with exactly the documented rights can do everything with locks that have owners.
// No right is superfluous. If one is missing, no key is left without an end.
func TestFault60_ACLOfOwnedLocks(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	user := func(name, without string) *redis.Options { return e.As(name, allowed(ownedRights, without)...) }
	if err := e.useOwned("all", user("all", "")); err != nil {
		t.Fatalf("with the documented rights: %v", err)
	}
	if log, err := e.Raw.ACLLog(t.Context(), 10).Result(); err != nil || len(log) > 0 {
		for _, l := range log {
			t.Errorf("refused: %s of %s in %s", l.Object, l.Username, l.Context)
		}
	}
	for i, right := range ownedRights {
		t.Run("without "+right, func(t *testing.T) {
			if right == "eval" {
				must(e, e.Raw.ScriptFlush(t.Context()).Err()) // alone, so no other Client sends the source
			} else {
				t.Parallel()
			}
			name := fmt.Sprint("u", i)
			err := e.useOwned(name, user(name, right))
			for _, part := range []string{"lock", "queue", "seen"} {
				if e.Raw.PTTL(t.Context(), e.key(name, part)).Val() == -1 && right != "pexpire" {
					t.Errorf("%s is left without an end", part)
				}
			}
			e.needed(t, right, name, err)
		})
	}
}

// If an ACL forbids to give a lock's key an end, the lock is not acquired and nothing of it
// is left. The client could die before it releases the lock.
func TestOwnedLockWithoutAnEndIsNotTaken(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	endless := redis.NewClient(e.As("endless", "~*", "&*", "+@all", "-pexpireat"))
	defer endless.Close()
	source, err := lockcore.ScriptSource("owned_acquire")
	must(e, err)
	answer, err := endless.Eval(t.Context(), source, e.scriptKeys("orders"), argv("owned_acquire", "ns1:ALIVE.1.t.w/me id", 60000, "try")...).Result()
	if err == nil || !strings.Contains(err.Error(), "can't run this command") && !strings.Contains(err.Error(), "permissions to run") {
		t.Errorf("answer %v, error %v, want one that tells what is forbidden", answer, err)
	}
	if e.Exists(e.key("orders", "lock")) {
		t.Error("the lock is left without an end")
	}
}

// useOwned does everything that a Client does with locks that have owners.
func (e *env) useOwned(name string, opt *redis.Options) error {
	e.Helper()
	c := e.ClientWith(opt, lockcore.Config{Identity: "a"})
	ctx, cancel := context.WithTimeout(e.Context(), 20*time.Second)
	defer cancel()
	cfg := ttl(3 * time.Second)
	x, y := e.rw(c, name, "x", cfg), e.rw(c, name, "y", cfg)
	write, err := x.TryLock(ctx)
	if err != nil {
		return err
	}
	again, err := x.TryRLock(ctx)
	if err != nil {
		return err
	}
	inner, err := x.TryLock(ctx)
	if err != nil {
		return err
	}
	if err := inner.Unlock(ctx); err != nil {
		return err
	}
	type outcome struct {
		lease *lockcore.Lease
		err   error
	}
	came := make(chan outcome, 1)
	go func() {
		lease, err := y.RLock(ctx)
		came <- outcome{lease, err}
	}()
	e.Until("it is queued or has failed", func() bool { return e.queueLength(name) == 1 || len(came) == 1 })
	if _, err := y.TryLock(ctx); !errors.Is(err, lockcore.ErrNotAcquired) {
		return err
	}
	e.Pass(1300 * time.Millisecond) // a renewal
	if write.Context().Err() != nil {
		return context.Cause(write.Context())
	}
	if err := lockcore.Downgrade(ctx, write); err != nil {
		return err
	}
	read := <-came
	if read.err != nil {
		return read.err
	}
	if _, err := x.TryLock(ctx); !errors.Is(err, lockcore.ErrUpgrade) {
		return fmt.Errorf("want ErrUpgrade: %w", err)
	}
	for _, lease := range []*lockcore.Lease{again, write, read.lease} {
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	reader, err := x.TryRLock(ctx)
	if err != nil {
		return err
	}
	other, err := y.TryRLock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(reader.Unlock(ctx), other.Unlock(ctx))
}

// If a server refuses to show the entries of a lock, the error says so. It does not say
// that another kind of lock uses the name.
func TestOwnedLockThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	user := redis.NewClient(e.As("blind", "~noonlock:*", "+@all", "-zmscore"))
	defer user.Close()
	const mine = "ns1:ALIVE.1.t.w/me id"
	e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"w", mine, time.Minute}}})
	source, err := lockcore.ScriptSource("owned_acquire")
	must(e, err)
	answer, err := user.Eval(e.Context(), source, e.scriptKeys("orders"), argv("owned_acquire", mine, 60000, "look")...).Result()
	if err == nil {
		e.Errorf("answer %v, want a refusal", answer)
	}
}
