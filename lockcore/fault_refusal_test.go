package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server refuses to set up a connection, for many calls at once, on the first connection and on a replacement.
// Every call returns that error, and none is unknown, because nothing was sent. Leases end in time, and everything
// works again once the server accepts connections.
// Caught mutant: a call that waits for a connection counts as sent.
func TestFault70_SetupRefused(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]struct {
		db               int
		begin, end, says string
	}{
		"the password is wrong": {0, "resetpass >another", "resetpass >secret", "WRONGPASS"},
		"the user is off":       {0, "off", "on", "WRONGPASS"},
		"no select":             {3, "-select", "+select", "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			opt := e.As("narrow", "~noonlock:*", "resetchannels", "&noonlock:*", "+@all")
			opt.DB = s.db
			var log testenv.Log
			c := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Logger()})
			var leases []*lockcore.Lease
			for i := range 20 { // renewed in one pipeline
				leases = append(leases, e.try(e.mutex(c, fmt.Sprint("held", i), ttl(2*time.Second))))
			}
			must(e, e.Raw.ACLSetUser(e.Context(), "narrow", strings.Fields(s.begin)...).Err())
			must(e, e.Raw.Do(e.Context(), "client", "kill", "user", "narrow").Err())
			e.Pass(10 * time.Millisecond) // a connection that was used a moment ago is not checked
			for _, c := range []*lockcore.Client{c, e.ClientWith(opt, lockcore.Config{Identity: "b"})} {
				var all sync.WaitGroup
				for i := range 100 { // more than there are connections: pipelines
					all.Go(func() {
						var err error
						if i%2 == 0 {
							_, err = c.Inspect(e.Context(), "held0")
						} else {
							_, err = e.mutex(c, fmt.Sprint("free", i), ttl(time.Minute)).TryLock(e.Context())
						}
						mustNotBe(e, err, lockcore.ErrUnknown, lockcore.ErrNotAcquired)
						if err == nil || !strings.Contains(err.Error(), s.says) || lockcore.IsTemporary(err) {
							e.Errorf("%v, want %s, which is not temporary", err, s.says)
						}
					})
				}
				all.Wait()
			}
			for _, l := range leases {
				mustIs(e, e.ended(l), lockcore.ErrLeaseExpired)
			}
			if log.Count("answered nothing") > 0 || log.Count(s.says) == 0 {
				e.Errorf("the log says %s", &log)
			}
			must(e, e.Raw.ACLSetUser(e.Context(), "narrow", strings.Fields(s.end)...).Err())
			e.unlock(e.lock(e.mutex(c, "held1", ttl(time.Second))))
		})
	}
}

// The server refuses the writes of scripts for five seconds, in the words of Redis 6.2.16 and of 7.0. Held leases
// survive, a waiter keeps its place, and a release is repeated. Only new locks are refused, if the server cannot say
// how long it will lack something.
// Caught mutants: the code in the middle of the text is not looked for; NOREPLICAS is not exhaustion; a waiter that
// looks, or a release, is not repeated after one of the codes.
func TestFault19_20_74_RefusalsInScripts(t *testing.T) {
	const later, earlier = " script: 8d, on @user_script:12.", "ERR Error running script (call to f_8d): @user_script:12: @user_script: 12: -"
	for text, c := range map[string]struct {
		code    string
		lasting bool // a new lock is refused
	}{
		"READONLY You can't write against a read only replica." + later:                 {"READONLY", false},
		earlier + "READONLY You can't write against a read only replica.":               {"READONLY", false},
		"OOM command not allowed when used memory > 'maxmemory'." + later:               {"OOM", true},
		earlier + "NOREPLICAS Not enough good replicas to write.":                       {"NOREPLICAS", true},
		"MISCONF Redis is configured to save RDB snapshots, but it's currently" + later: {"MISCONF", true},
		earlier + "MISCONF Errors writing to the AOF file: No space left on device":     {"MISCONF", true},
		"BUSY Redis is busy running a script.":                                          {"BUSY", false},
	} {
		t.Run(text, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) { refusesScripts(e, text, c.code, c.lasting) })
		})
	}
}

func refusesScripts(e *env, text, code string, lasting bool) {
	e.Helper()
	a, b := e.Client("a"), e.Client("b")
	lease, kept := e.try(e.mutex(a, "orders", ttl(9*time.Second))), e.try(e.mutex(a, "kept", ttl(9*time.Second)))
	waiter, second := e.queued(e.mutex(b, "orders", ttl(3*time.Second))), e.queued(e.mutex(b, "kept", ttl(3*time.Second)))
	var refuses atomic.Bool
	var looks atomic.Int64
	e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
		if !refuses.Load() || !strings.HasPrefix(cmd, "EVAL") || args[1] == "0" { // what writes nothing is not refused
			return false
		}
		if strings.Contains(strings.Join(args, "\n"), "\nlook ") {
			looks.Add(1)
		}
		p.WriteError(text)
		return true
	})
	e.Cleanup(func() { refuses.Store(false) })
	refuses.Store(true)
	released := make(chan error, 1)
	go func() { released <- lease.Unlock(e.Context()) }()
	isRefusal := func(call string, err error) {
		if !redis.HasErrorPrefix(err, code) {
			e.Errorf("%s: %v, want the server's refusal", call, err)
		}
		mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
	}
	_, err := e.mutex(a, "vacant", ttl(time.Second)).TryLock(e.Context())
	isRefusal("TryLock", err)
	late := e.goLock(e.mutex(a, "fresh", ttl(9*time.Second)))
	e.Pass(5 * time.Second)
	if lasting {
		_, err := late.wait()
		isRefusal("Lock", err)
	}
	if looks.Load() < 2 || len(released) > 0 {
		e.Errorf("waiters looked %d times; Unlock returned during the fault: %v", looks.Load(), len(released) > 0)
	}
	refuses.Store(false)
	must(e, <-released)
	e.unlock(waiter.granted())
	must(e, context.Cause(kept.Context()))
	e.unlock(kept)
	e.unlock(second.granted())
	if !lasting {
		e.unlock(late.granted())
	}
	if left := fmt.Sprint(e.Raw.Keys(e.Context(), "noonlock:{vacant}:*").Val()); left != "[]" {
		e.Errorf("the refused acquire left %s", left)
	}
}

// The server is out of memory. Acquires are refused and leave nothing half done. Renewals and releases work.
// Caught mutants: renew by SET; a release that writes the tombstone before the DEL.
func TestFault31_OutOfMemory(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		lease := e.try(m)
		waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
		full := func(bytes string) { must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", bytes).Err()) }
		full("1")
		extend := map[bool]string{true: "pexpireat", false: "pexpire"}[e.owned()]
		renewals := e.calls(extend)
		e.Until("it was renewed often", func() bool { return e.calls(extend) > renewals+2 })
		must(e, context.Cause(lease.Context()))
		for range 2 {
			_, err := e.mutex(a, "fresh", ttl(time.Second)).TryLock(e.Context())
			if err == nil || !redis.HasErrorPrefix(err, "OOM") {
				e.Errorf("TryLock: %v, want the server's refusal", err)
			}
			mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
		}
		full("0")
		if keys := e.Raw.Keys(e.Context(), "noonlock:{fresh}:*").Val(); len(keys) > 0 {
			e.Errorf("the refused acquire left %v", keys)
		}
		full("1")
		// The release serves the queue although there is no memory, and waiters stay in
		// the queue.
		must(e, lease.Unlock(e.Context()))
		next := waiter.granted()
		full("0")
		e.unlock(next)
		e.unlock(e.try(m))
	}, "maxmemory-policy noeviction")
}

// Owned locks on a server that is out of memory. A reader confirms a grant and renews, a writer downgrades, one of
// two entries is released, and the queue is served. A free lock cannot be acquired.
// Caught mutants: any HSET before the commands that work without memory.
func TestFault31_OutOfMemoryOwned(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "maxmemory-policy noeviction")
	full := func(bytes string) { must(e, e.Raw.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	a, b := e.Client("a"), e.Client("b")
	cfg := ttl(3 * time.Second)
	first := e.try(e.rw(a, "orders", "a", cfg))
	second := e.try(e.rw(a, "orders", "a", ttl(30*time.Second)))
	reader := e.queued(reads{e.rw(b, "orders", "b", cfg)})
	writer := e.queued(e.rw(b, "orders", "w", cfg))
	full("1")
	e.leave(second)
	must(e, lockcore.Downgrade(t.Context(), first))
	read := reader.granted() // and with it the other's key end is later than its own
	renewals := e.calls("pexpireat")
	e.Until("both were renewed", func() bool { return e.calls("pexpireat") >= renewals+6 })
	if first.Context().Err() != nil || read.Context().Err() != nil {
		t.Errorf("a lease ended: %v, %v", context.Cause(first.Context()), context.Cause(read.Context()))
	}
	if _, err := e.rw(a, "fresh", "a", cfg).TryLock(t.Context()); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("TryLock: %v, want the server's refusal", err)
	}
	e.leave(first)
	e.leave(read)
	lease := writer.granted()
	full("0")
	e.unlock(lease)
	if keys := e.Raw.Keys(t.Context(), "noonlock:{fresh}:*").Val(); len(keys) > 0 {
		t.Errorf("the refused acquire left %v", keys)
	}
}

// A script that never ends blocks the server until it is killed. Nothing is applied in the meantime. Leases and
// waiters continue afterwards.
// Caught mutant: BUSY is returned as an error.
func TestFault33_BusyServer(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
		waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
		must(e, e.Raw.ConfigSet(e.Context(), "lua-time-limit", "20").Err())
		killed := make(chan error, 1)
		hog := redis.NewClient(&redis.Options{Addr: e.Real.Addr(), ReadTimeout: -1, MaxRetries: -1})
		defer hog.Close()
		go func() { killed <- hog.Eval(context.Background(), "while true do end", nil).Err() }()
		e.Until("the server is busy", func() bool { return redis.HasErrorPrefix(e.Raw.Get(e.Context(), "x").Err(), "BUSY") })
		free := e.goLock(e.mutex(b, "other", ttl(20*time.Second)))
		done := make(chan error, 1)
		go func() { done <- lease.Unlock(e.Context()) }()
		for range 20 { // during this time the server answers BUSY to all clients
			if err := e.Raw.Get(e.Context(), "x").Err(); !redis.HasErrorPrefix(err, "BUSY") {
				e.Fatalf("not busy any more: %v", err)
			}
		}
		must(e, e.Raw.ScriptKill(e.Context()).Err())
		if err := <-killed; err == nil {
			e.Error("the script was not killed")
		}
		if err := <-done; err != nil {
			e.Errorf("Unlock: %v", err)
		}
		e.unlock(waiter.granted())
		e.unlock(free.granted())
	})
}

// Renewals that only an operator can make succeed are errors, once for each lease until one of its renewals
// succeeds. Others are details.
func TestFault60_RefusedRenewalsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		log := &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Logger()})
		for _, name := range []string{"x", "y"} {
			e.try(e.mutex(c, name, lockcore.LeaseConfig{TTL: 30 * time.Second}))
		}
		want := func(what string, lines, errors int) {
			e.Helper()
			if n := log.Count("renewal failed"); n < lines {
				e.Errorf("%s: %d renewals failed, want at least %d", what, n, lines)
			}
			if n := log.Count(`"msg"="renewal failed" "error"=`); n != errors {
				e.Errorf("%s: %d errors, want %d:\n%s", what, n, errors, log)
			}
		}
		server := e.Bubble.Server()
		for round := 1; round <= 2; round++ {
			server.SetError("NOPERM this user has no permissions")
			time.Sleep(15 * time.Second)
			want("refused", 4*round, 2*round)
			server.SetError("")
			time.Sleep(15 * time.Second)
		}
		before := log.Count("renewal failed")
		server.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(15 * time.Second)
		want("loading", before+2, 4)
		server.SetError("")
		time.Sleep(15 * time.Second)
		if n := log.Count("lease lost"); n != 0 {
			e.Errorf("%d leases lost", n)
		}
	})
}

// The Client is connected to one shard of a cluster, as New cannot see. A name of another shard is refused with
// MOVED: calls return that at once, also those that would wait, and nothing is granted. A renewal of a name that
// moves is logged as an error.
// Caught mutants: MOVED is temporary, so that the call is repeated until its context ends; it needs no operator.
func TestFault76_OneShardOfACluster(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		log := &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Logger()})
		here := e.try(e.mutex(c, "here", lockcore.LeaseConfig{TTL: 30 * time.Second}))
		e.try(e.mutex(c, "moves", lockcore.LeaseConfig{TTL: 30 * time.Second}))
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			if !strings.HasPrefix(cmd, "EVAL") || slices.Contains(args, e.key("here", "lock")) {
				return false
			}
			p.WriteError("MOVED 3999 127.0.0.1:7001")
			return true
		})
		began := time.Now()
		m := e.mutex(c, "there", lockcore.LeaseConfig{})
		for name, acquire := range map[string]func(context.Context) (*lockcore.Lease, error){"TryLock": m.TryLock, "Lock": m.Lock} {
			lease, err := acquire(e.Context())
			if lease != nil || err == nil || !strings.Contains(err.Error(), "MOVED 3999 127.0.0.1:7001") || lockcore.IsTemporary(err) {
				e.Errorf("%s: %v, %v; want MOVED, which is not temporary", name, lease, err)
			}
			mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
		}
		if took := time.Since(began); took > time.Second {
			e.Errorf("the calls took %s", took)
		}
		time.Sleep(time.Minute)
		must(e, here.Context().Err())
		if n := log.Count(`"msg"="renewal failed" "error"="MOVED`); n != 1 {
			e.Errorf("%d errors, want 1:\n%s", n, log)
		}
		e.Bubble.Server().Server().SetPreHook(nil)
	})
}

// A self-test that is refused is an error, once, however often it is repeated.
func TestFault60_RefusedPublishIsLoggedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			if cmd != "PUBLISH" {
				return false
			}
			p.WriteError("NOPERM this user has no permissions to run the 'publish' command")
			return true
		})
		log := &testenv.Log{}
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Logger()})
		m := e.mutex(c, "x", lockcore.LeaseConfig{})
		lease := e.try(m)
		waiter := e.queued(m) // begins the subscription
		for range 5 {
			time.Sleep(2 * time.Minute)
			if faults.CutSubscriptions() == 0 {
				e.Fatal("there is no subscription")
			}
		}
		time.Sleep(time.Minute)
		e.unlock(lease)
		e.unlock(waiter.granted())
		if n := log.Count(`"msg"="receiver count not trusted`, `"error"="NOPERM`); n != 1 || log.Count("receiver count not trusted") != 1 {
			e.Errorf("%d errors, want 1:\n%s", n, log)
		}
	})
}

// Keys of another type: each call and waiter gets ErrWrongKind, no lock is left, and the key is not changed.
// Caught mutants: redis.call instead of pcall where the lock is read; a renewal sets the TTL of any counter.
func TestFault32_WrongType(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				a, b := e.Client("a"), e.Client("b")
				spoil := func(name string) {
					e.Raw.Del(e.Context(), e.key(name, part))
					must(e, e.Raw.SAdd(e.Context(), e.key(name, part), "stranger").Err())
				}
				unchanged := func(name string) {
					e.Helper()
					if key := e.key(name, part); e.Raw.SCard(e.Context(), key).Val() != 1 || e.Raw.TTL(e.Context(), key).Val() != -1 {
						e.Errorf("%s: the stranger's key was changed", name)
					}
				}
				// While the lock is held.
				lease := e.try(e.mutex(a, "held", ttl(3*time.Second)))
				waiter := e.queued(e.mutex(b, "held", ttl(3*time.Second)))
				spoil("held")
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
					mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld)
				} else {
					e.Pass(time.Second)
					e.Until("the lease is renewed", func() bool { return lease.Remaining() > 2500*time.Millisecond })
					mustIs(e, lease.Unlock(e.Context()), lockcore.ErrWrongKind)
					if e.stored("held") != "" {
						e.Error("the lock was not released")
					}
				}
				_, err := waiter.wait()
				mustIs(e, err, lockcore.ErrWrongKind)
				unchanged("held")
				spoil("asked")
				for range 2 {
					got, err := e.mutex(b, "asked", ttl(time.Second)).Lock(e.Context())
					if part == "seen" { // only a queue needs it
						must(e, err)
						e.unlock(got)
						continue
					}
					mustIs(e, err, lockcore.ErrWrongKind)
					_, err = e.mutex(b, "asked", ttl(time.Second)).TryLock(e.Context())
					mustIs(e, err, lockcore.ErrWrongKind)
					mustNotBe(e, err, lockcore.ErrNotAcquired)
				}
				if part != "lock" && e.stored("asked") != "" || part != "queue" && e.queueLength("asked") != 0 {
					e.Error("a refused acquire left something")
				}
				unchanged("asked")
				_, err = e.force(a, "asked")
				must(e, err)
			})
		})
	}
}

// The server accepts no more connections. Clients with connections continue. The error of a Client that needs one
// names the cause, and is not ErrNotAcquired.
// Caught mutant: a dial error is ErrNotAcquired.
func TestFault44_NoMoreConnections(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a := e.Client("a")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		waiter := e.queued(e.mutex(a, "orders", ttl(3*time.Second)))
		e.Until("it was renewed once, on a connection of its own", func() bool { return lease.Remaining()+e.Clock() > 4*time.Second })
		most := e.connections("")
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", strconv.Itoa(most)).Err())
		if err := redis.NewClient(testenv.Options(e.Real.Addr())).Ping(e.Context()).Err(); err == nil {
			e.Fatal("the server takes more connections")
		}
		_, err := e.mutex(e.Client("b"), "free", ttl(time.Second)).TryLock(e.Context())
		if err == nil || errors.Is(err, lockcore.ErrNotAcquired) {
			e.Errorf("TryLock: %v, want what is wrong", err)
		}
		e.Pass(3500 * time.Millisecond)
		must(e, context.Cause(lease.Context()))
		e.unlock(lease)
		e.unlock(waiter.granted())
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", "1000").Err())
		e.unlock(e.try(e.mutex(e.Client("b"), "free", ttl(time.Second))))
	})
}

func TestTemporary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		provoke   func(r *lockcoretest.Redis, c *lockcore.Client)
		temporary bool
	}{
		{"away", func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Stop() }, true},
		{"hung", func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Hang() }, true},
		{"loading", answers("LOADING Redis is loading the dataset in memory"), true},
		{"busy", answers("BUSY Redis is busy running a script"), true},
		{"read-only", answers("READONLY You can't write against a read only replica"), true},
		{"no rights", answers("NOPERM this user has no permissions"), false},
		{"no password", answers("NOAUTH Authentication required"), false},
		{"no memory", answers("OOM command not allowed when used memory > 'maxmemory'"), false},
		{"closed", func(_ *lockcoretest.Redis, c *lockcore.Client) { _ = c.Close(context.Background()) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := lockcoretest.NewRedis(t)
				client, err := lockcore.New(r.Client(), lockcore.Config{})
				must(t, err)
				t.Cleanup(func() {
					r.Unhang()
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = client.Close(ctx) // one of them is already closed
				})
				m, err := client.Mutex("x", lockcore.LeaseConfig{})
				must(t, err)
				c.provoke(r, client)
				lease, err := m.TryLock(t.Context())
				if lease != nil || err == nil {
					t.Fatal("TryLock has not failed")
				}
				if got := lockcore.IsTemporary(err); got != c.temporary {
					t.Errorf("IsTemporary(%v) = %v", err, got)
				}
			})
		})
	}
	if lockcore.IsTemporary(nil) || lockcore.IsTemporary(errors.New("else")) || lockcore.IsTemporary(&lockcore.HeldError{}) {
		t.Error("no error, a foreign one or a lock that is held are temporary")
	}
}

func answers(text string) func(*lockcoretest.Redis, *lockcore.Client) {
	return func(r *lockcoretest.Redis, _ *lockcore.Client) { r.Server().SetError(text) }
}
