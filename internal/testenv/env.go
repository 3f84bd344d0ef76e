// Package testenv is the servers, clients and waits that the tests of this module share.
// The same test runs on miniredis in a bubble of virtual time and on a redis-server.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Patience bounds every wait for something that must happen on a real server. Nothing is
// measured against it.
const Patience = 60 * time.Second

// An Env is the server that a test runs on.
type Env struct {
	*testing.T
	Bubble *lockcoretest.Redis  // nil on a real server
	Real   *servers.RedisServer // nil in a bubble
	Raw    *redis.Client        // past lockcore, to look and to interfere
	Start  time.Time
	probes atomic.Int64
}

// OnBoth runs a test in a bubble and on a real server, at the same time.
func OnBoth(t *testing.T, test func(e *Env)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		InBubble(t, test)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(OnServer(t))
	})
}

// InBubble runs a test in a bubble.
func InBubble(t *testing.T, test func(e *Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		test(&Env{T: t, Bubble: r, Raw: r.Client(), Start: time.Now()})
	})
}

// OnServer starts a real server, with lines of its configuration.
func OnServer(t *testing.T, conf ...string) *Env {
	t.Helper()
	s := servers.Redis(t, conf...)
	e := &Env{T: t, Real: s, Start: time.Now()}
	e.Raw = redis.NewClient(Options(s.Addr()))
	t.Cleanup(func() { e.Raw.Close() })
	return e
}

// Options are those of a client of the server at an address.
func Options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Errorf is T.Errorf. With a mutant of a script the first error says all there is to say:
// the process ends.
func (e *Env) Errorf(format string, args ...any) {
	e.Helper()
	e.T.Errorf(format, args...)
	e.endMutant()
}

// Error is T.Error, as Errorf is T.Errorf.
func (e *Env) Error(args ...any) {
	e.Helper()
	e.T.Error(args...)
	e.endMutant()
}

func (e *Env) endMutant() {
	if os.Getenv(mutantVariable) != "" {
		fmt.Printf("--- FAIL: %s: ended at its first error\n", e.Name())
		os.Exit(1)
	}
}

// Clock is a clock for clients and histories: of the bubble, or of the machine.
func (e *Env) Clock() time.Duration { return time.Since(e.Start) }

// Direct returns options for a client past all faults.
func (e *Env) Direct() *redis.Options {
	if e.Bubble != nil {
		return e.Bubble.Options()
	}
	return Options(e.Real.Addr())
}

// Link returns options for one client with a network of its own.
func (e *Env) Link() (*redis.Options, *lockcoretest.Faults) {
	e.Helper()
	if e.Bubble != nil {
		f := lockcoretest.NewFaults()
		return e.Bubble.OptionsVia(f), f
	}
	p := lockcoretest.NewProxy(e, e.Real.Addr())
	return Options(p.Addr()), p.Faults()
}

// Client makes a lockcore client of that identity, closed at the end of the test.
func (e *Env) Client(identity string) *lockcore.Client {
	e.Helper()
	return e.ClientWith(e.Direct(), lockcore.Config{Identity: identity})
}

// Linked is Client with a network of its own.
func (e *Env) Linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	e.Helper()
	opt, f := e.Link()
	return e.ClientWith(opt, lockcore.Config{Identity: identity}), f
}

// ClientWith makes a lockcore client, closed at the end of the test.
func (e *Env) ClientWith(opt *redis.Options, cfg lockcore.Config) *lockcore.Client {
	e.Helper()
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, cfg)
	if err != nil {
		e.Fatalf("New: %v", err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, lockcore.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("Close: %v", err)
		}
		rdb.Close()
	})
	return c
}

// TTL is a LeaseConfig of that TTL.
func TTL(d time.Duration) lockcore.LeaseConfig { return lockcore.LeaseConfig{TTL: d} }

// As makes a user that may do what the rules of an ACL say, and options to be it.
func (e *Env) As(user string, rules ...string) *redis.Options {
	e.Helper()
	Must(e, e.Raw.ACLSetUser(e.Context(), user, append([]string{"reset", "on", ">secret"}, rules...)...).Err())
	opt := e.Direct()
	opt.Username, opt.Password = user, "secret"
	return opt
}

// Narrowed is a client that may touch no other keys, with further rules of an ACL; in a
// bubble it may do everything.
func (e *Env) Narrowed(user string, keys []string, rules ...string) *redis.Client {
	e.Helper()
	if e.Real == nil {
		return e.Raw
	}
	all := []string{"+@all", "allchannels"}
	for _, k := range keys {
		all = append(all, "~"+k)
	}
	c := redis.NewClient(e.As(user, append(all, rules...)...))
	e.Cleanup(func() { c.Close() })
	return c
}

// Exists reports whether there is a key.
func (e *Env) Exists(key string) bool {
	e.Helper()
	n, err := e.Raw.Exists(e.Context(), key).Result()
	Must(e, err)
	return n == 1
}

// PTTL is the time that a key has left.
func (e *Env) PTTL(key string) time.Duration {
	e.Helper()
	d, err := e.Raw.PTTL(e.Context(), key).Result()
	Must(e, err)
	return d
}

// Knows reports whether the server has a command.
func (e *Env) Knows(command string) bool {
	e.Helper()
	list, err := e.Raw.Do(e.Context(), "command", "info", command).Slice()
	Must(e, err)
	return len(list) == 1 && list[0] != nil
}

// Heard returns the messages that a subscription has received since the last call, as
// "channel payload". The channel is one that it listens to.
func (e *Env) Heard(sub *redis.PubSub, channel string) (all []string) {
	e.Helper()
	const end = "that is all"
	Must(e, e.Raw.Publish(e.Context(), channel, end).Err())
	for {
		m, err := sub.ReceiveMessage(e.Context())
		Must(e, err)
		if m.Payload == end {
			return all
		}
		all = append(all, m.Channel+" "+m.Payload)
	}
}

// Settle lets everything happen that happens without time passing; on a real server only
// a condition can tell, see Until.
func (e *Env) Settle() {
	if e.Bubble != nil {
		synctest.Wait()
	}
}

// Until waits for a condition.
func (e *Env) Until(what string, condition func() bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		e.Settle()
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.Fatalf("in vain waited until %s", what)
		}
	}
}

// Pass lets d pass: in a bubble by the clock, on a real server by a key that expires, so
// that the server has seen the time pass, too.
func (e *Env) Pass(d time.Duration) {
	e.Helper()
	if e.Bubble != nil {
		time.Sleep(d)
		synctest.Wait()
		return
	}
	probe := fmt.Sprintf("probe:%d", e.probes.Add(1))
	Must(e, e.Raw.Set(e.Context(), probe, 1, d).Err())
	e.Until("time has passed", func() bool { return !e.Exists(probe) })
}

// Must ends a test with an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// MustIs asserts what an error is.
func MustIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that is %v", err, target)
		}
	}
}

// MustNotBe asserts what an error is not.
func MustNotBe(t testing.TB, err error, not ...error) {
	t.Helper()
	for _, target := range not {
		if errors.Is(err, target) {
			t.Errorf("error is %v, want none that is %v", err, target)
		}
	}
}
