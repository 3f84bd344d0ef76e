package testenv

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// universal returns options for a client of the topology. opt is from Direct or Link. The test may have changed its
// names, rights and Dialer.
func (e *Env) universal(opt *redis.Options) *redis.UniversalOptions {
	all := &redis.UniversalOptions{
		ClientName: opt.ClientName, Dialer: opt.Dialer,
		Username: opt.Username, Password: opt.Password, CredentialsProvider: opt.CredentialsProvider,
		CredentialsProviderContext: opt.CredentialsProviderContext, StreamingCredentialsProvider: opt.StreamingCredentialsProvider,
		MaxRetries: opt.MaxRetries, DialTimeout: opt.DialTimeout, ReadTimeout: opt.ReadTimeout, WriteTimeout: opt.WriteTimeout,
		PoolSize: opt.PoolSize, DisableIdentity: opt.DisableIdentity, MaintNotificationsConfig: opt.MaintNotificationsConfig,
	}
	switch {
	case e.cluster != nil:
		all.Addrs, all.IsClusterMode = e.cluster.Addrs(), true
	case e.sentinel != nil:
		all.Addrs, all.MasterName = []string{e.sentinel.Sentinel.Addr()}, servers.WatchedName
	}
	return all
}

// Connect returns a client of go-redis with these options, see universal.
func (e *Env) Connect(opt *redis.Options) redis.UniversalClient {
	if e.cluster == nil && e.sentinel == nil {
		return redis.NewClient(opt)
	}
	return redis.NewUniversalClient(e.universal(opt))
}

// Options returns options for a client of the server at addr.
func Options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Direct returns options for a client without faults.
func (e *Env) Direct() *redis.Options {
	switch {
	case e.Bubble != nil:
		return e.Bubble.Options()
	case e.cluster != nil:
		return Options(e.cluster.Primaries[0].Addr())
	case e.sentinel != nil:
		return Options(e.sentinel.Primary.Addr())
	}
	return Options(e.Real.Addr())
}

// Link returns options for a client with a separate network, and that network.
func (e *Env) Link() (*redis.Options, *lockcoretest.Faults) {
	e.Helper()
	f := lockcoretest.NewFaults()
	if e.Bubble != nil {
		return e.Bubble.OptionsVia(f), f
	}
	e.Cleanup(f.Close)
	opt := e.Direct()
	faulty := f.Dialer(nil)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if e.sentinel != nil && addr == e.sentinel.Sentinel.Addr() { // no faults between the Client and the Sentinel
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		return faulty(ctx, network, addr)
	}
	return opt, f
}

// Client returns a lockcore client with an identity. It is closed at the end of the test.
func (e *Env) Client(identity string) *lockcore.Client {
	e.Helper()
	return e.ClientWith(e.Direct(), lockcore.Config{Identity: identity})
}

// Linked is Client with a separate network, which it also returns.
func (e *Env) Linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	e.Helper()
	opt, f := e.Link()
	return e.ClientWith(opt, lockcore.Config{Identity: identity}), f
}

// ClientWith returns a lockcore client. It is closed at the end of the test.
func (e *Env) ClientWith(opt *redis.Options, cfg lockcore.Config) *lockcore.Client {
	return e.ClientOn(nil, opt, cfg)
}

// quiet adds a Logger that drops all lines if there is none.
func quiet(cfg lockcore.Config) lockcore.Config {
	cfg.Logger = cmp.Or(cfg.Logger, lockcore.Discard)
	return cfg
}

// ClientOn is ClientWith, with leases that use a clock of the test. With a nil clock, they use the real one.
func (e *Env) ClientOn(clock func() time.Duration, opt *redis.Options, cfg lockcore.Config) *lockcore.Client {
	e.Helper()
	var made *lock.Client
	var err error
	if e.sentinel != nil {
		made, err = lock.NewFromOptions(e.universal(opt), lock.Config(quiet(cfg)), clock)
	} else {
		rdb := e.Connect(opt)
		e.Cleanup(func() { rdb.Close() })
		made, err = lock.New(rdb, lock.Config(quiet(cfg)), clock)
	}
	Must(e, err)
	c := new(lockcore.Client)
	lock.Attach(c, made)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, lockcore.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("Close: %v", err)
		}
	})
	return c
}

// TTL returns a LeaseConfig with that TTL.
func TTL(d time.Duration) lockcore.LeaseConfig { return lockcore.LeaseConfig{TTL: d} }

// Hold acquires a mutex with a TTL of a minute until the end of the test.
func (e *Env) Hold(c *lockcore.Client, name string) *lockcore.Lease {
	e.Helper()
	m := Call(c.Mutex(name, TTL(time.Minute))).Must(e)
	return Call(m.TryLock(e.Context())).Must(e)
}

// Background runs a function until the end of the test, or until stop.
func (e *Env) Background(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			e.Errorf("in the background: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
	e.Cleanup(stop)
	return stop
}

// As creates a user with ACL rules, and returns options for a client of that user.
func (e *Env) As(user string, rules ...string) *redis.Options {
	e.Helper()
	Must(e, e.Raw.ACLSetUser(e.Context(), user, append([]string{"reset", "on", ">secret"}, rules...)...).Err())
	opt := e.Direct()
	opt.Username, opt.Password = user, "secret"
	return opt
}

// Narrowed returns a client that may access only these keys, with additional ACL rules. In
// a bubble it returns Raw.
func (e *Env) Narrowed(user string, keys []string, rules ...string) redis.UniversalClient {
	e.Helper()
	if e.Bubble != nil {
		return e.Raw
	}
	all := []string{"+@all", "allchannels"}
	for _, k := range keys {
		all = append(all, "~"+k)
	}
	c := e.Connect(e.As(user, append(all, rules...)...))
	e.Cleanup(func() { c.Close() })
	return c
}

// A Clock is the clock of one process. It can jump, as on a host that was suspended: then no timer fires.
type Clock struct {
	start time.Time
	jumps atomic.Int64
}

// NewClock returns a clock that starts at 0.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the time since NewClock, with all jumps.
func (c *Clock) Now() time.Duration { return time.Since(c.start) + time.Duration(c.jumps.Load()) }

// Advance makes the clock jump, forward or backward.
func (c *Clock) Advance(d time.Duration) { c.jumps.Add(int64(d)) }

// Rights returns the ACL rules for a user with these needs, as docs/SECURITY.md lists them.
func Rights(t testing.TB, needs lock.Needs, quorum bool) []string {
	t.Helper()
	scripts, err := needs.Scripts(quorum)
	Must(t, err)
	kinds, commands := append([]string{"ch"}, needs.Channels...), []string{"+evalsha", "+eval", "+subscribe", "+ping"}
	if quorum {
		kinds = append(kinds, "free")
	}
	if len(kinds) > 1 { // a process never unsubscribes from "ch"
		commands = append(commands, "+unsubscribe")
	}
	rules := []string{"~noonlock:*", "resetchannels"}
	for _, kind := range kinds {
		rules = append(rules, "&noonlock:"+kind+":*")
	}
	called := needs.Commands
	for _, s := range scripts {
		called = slices.Concat(called, s.Commands())
	}
	var used []string
	for _, command := range called {
		used = append(used, "+"+strings.ToLower(command))
	}
	slices.Sort(used)
	return slices.Concat(rules, []string{"-@all"}, commands, slices.Compact(used))
}
