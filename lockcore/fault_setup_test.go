package lockcore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A setup is a requirement of the server for new connections, from some moment on.
type setup struct {
	name  string
	of    func(opt *redis.Options) // the Client's options
	begin func(e *env)             // makes the server refuse new connections
	end   func(e *env)             // and accept them again
	says  string                   // the server's error
}

func setups() []setup {
	const user = "narrow"
	acl := func(rules ...string) func(e *env) {
		return func(e *env) {
			must(e, e.Raw.ACLSetUser(e.Context(), user, rules...).Err())
			_ = e.Raw.Do(e.Context(), "client", "kill", "user", user).Err()
		}
	}
	none := func(*redis.Options) {}
	return []setup{
		{"the password is wrong", none, acl("resetpass", ">another"), acl("resetpass", ">secret"), "WRONGPASS"},
		{"the user is off", none, acl("off"), acl("on"), "WRONGPASS"},
		{"no select", func(opt *redis.Options) { opt.DB = 3 }, acl("-select"), acl("+select"), "NOPERM"},
	}
}

// The server refuses to set up a connection, for single calls and for pipelines, on the
// first connection and on a replacement. Every call of a pipeline returns that error. No
// call reports that a value does not exist or that the server did not answer. None is
// unknown, because nothing was sent. Leases end in time, and everything works again once
// the server accepts connections.
//
// Caught mutant: a call that waits for a connection counts as sent.
func TestFault70_SetupRefused(t *testing.T) {
	t.Parallel()
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			setupRefused(realEnv(t), s)
		})
	}
}

func setupRefused(e *env, s setup) {
	opt := e.As("narrow", "~noonlock:*", "resetchannels", "&noonlock:*", "+@all")
	s.of(opt)
	var log testenv.Log
	c := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Logger()})
	ask := func(c *lockcore.Client, command string, args ...any) (any, error) {
		board, err := lock.Of(c).Name("board", new(lock.LeaseConfig(ttl(30*time.Second)))) // a third of it must suffice for a hundred refusals
		must(e, err)
		return board.Ask(e.Context(), wire.Command(append([]any{command, board.Key("record")}, args...)...))
	}
	_, err := ask(c, "set", "x")
	must(e, err)
	read := func(c *lockcore.Client) error {
		answer, err := ask(c, "get")
		if err == nil && wire.Text(answer) != "x" {
			e.Errorf("the answer is %v", answer)
		}
		return err
	}
	var leases []*lockcore.Lease
	for i := range 20 { // renewed in one pipeline
		leases = append(leases, e.try(e.mutex(c, fmt.Sprint("held", i), ttl(2*time.Second))))
	}
	get := func(c *lockcore.Client) {
		e.Helper()
		var wg sync.WaitGroup
		for g := range 100 { // more than there are connections: pipelines
			wg.Go(func() {
				var err error
				if g%2 == 0 {
					err = read(c)
				} else {
					_, err = e.mutex(c, fmt.Sprint("free", g), ttl(time.Minute)).TryLock(e.Context())
				}
				switch {
				case err == nil:
					e.Error("a call succeeded")
				case !strings.Contains(err.Error(), s.says):
					e.Errorf("a call failed with %v, want %s", err, s.says)
				case errors.Is(err, lockcore.ErrUnknown) || errors.Is(err, lockcore.ErrNotAcquired):
					e.Errorf("a call that was never sent failed with %v", err)
				case lockcore.IsTemporary(err):
					e.Errorf("%v is temporary", err)
				}
			})
		}
		wg.Wait()
	}
	s.begin(e)
	e.Pass(10 * time.Millisecond) // a connection that was used a moment ago is not checked
	get(c)
	get(e.ClientWith(opt, lockcore.Config{Identity: "b"})) // had no connection before
	for _, l := range leases {
		mustIs(e, e.ended(l), lockcore.ErrLeaseExpired)
	}
	if text := log.String(); strings.Contains(text, "answered nothing") || !strings.Contains(text, s.says) {
		e.Errorf("the log says %s", text)
	}
	s.end(e)
	e.Until("it works again", func() bool {
		return read(c) == nil
	})
	e.unlock(e.lock(e.mutex(c, "held1", ttl(time.Second))))
}

// A database that the server does not have.
func TestFault70_NoSuchDatabase(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	opt := e.Direct()
	opt.DB = 4711
	_, err := e.mutex(e.ClientWith(opt, lockcore.Config{}), "orders", ttl(time.Second)).TryLock(e.Context())
	if err == nil || !strings.Contains(err.Error(), "DB index is out of range") || lockcore.IsTemporary(err) {
		e.Errorf("TryLock: %v", err)
	}
	mustNotBe(t, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired)
}

// The server has reached its limit of connections, and closes further ones without reading.
// Nothing was sent, as far as the Client is concerned, and the error may be temporary.
//
// Caught mutant: the answer to the commands that set up the connection is ignored.
func TestFault44_TurnedAwayIsNotUnknown(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	e.Raw.Ping(e.Context())
	must(e, e.Raw.ConfigSet(e.Context(), "maxclients", "1").Err())
	for _, c := range []*lockcore.Client{e.Client("a"), e.Client("b")} {
		var wg sync.WaitGroup
		for g := range 50 {
			wg.Go(func() {
				_, err := e.mutex(c, fmt.Sprint("free", g), ttl(time.Minute)).TryLock(e.Context())
				if err == nil || !strings.Contains(err.Error(), "max number of clients") || !lockcore.IsTemporary(err) ||
					errors.Is(err, lockcore.ErrUnknown) || errors.Is(err, lockcore.ErrNotAcquired) {
					e.Errorf("TryLock: %v", err)
				}
			})
		}
		wg.Wait()
	}
}
