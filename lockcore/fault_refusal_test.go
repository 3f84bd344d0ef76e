package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// The server refuses the writes of scripts for five seconds, in the words of Redis 6.2.16 and of 7.0. Held leases
// survive, a waiter keeps its place, and a release is repeated. Only new locks are refused, if the server cannot say
// how long it will lack something.
func TestFault19_20_33_74_RefusalsInScripts(t *testing.T) {
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
	e.leftOnlyTombstones("vacant")
}

// The server is out of memory. Acquires are refused and leave nothing half done. Renewals and releases work, also those
// of an operator, without a remark.
func TestFault31_OutOfMemory(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		m := e.mutex(a, "orders", ttl(3*time.Second))
		lease := e.try(m)
		waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
		e.try(e.mutex(a, "stuck", ttl(time.Minute)))
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
		e.leftOnlyTombstones("fresh")
		full("1")
		e.forced(1)(e.force(b, "stuck"))
		// The release serves the queue although there is no memory, and waiters stay in
		// the queue.
		must(e, lease.Unlock(e.Context()))
		next := waiter.granted()
		full("0")
		e.unlock(next)
		e.unlock(e.try(m))
	}, "maxmemory-policy noeviction")
}

// Renewals that only an operator can make succeed are errors, once for each lease until one of its renewals
// succeeds. Others are details. A self-test that is refused is an error, once, however often it is repeated. The
// withdrawals of many attempts that may have been stored are one line.
func TestFault60_RefusalsAreLoggedOnce(t *testing.T) {
	inBubble(t, func(e *env) {
		log := &testenv.Log{}
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Logger()})
		var renewals atomic.Value
		renewals.Store("")
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			refusal := ""
			switch {
			case cmd == "PUBLISH":
				refusal = "NOPERM this user has no permissions to run the 'publish' command"
			case strings.HasPrefix(cmd, "EVAL") && !strings.Contains(strings.Join(args, "\n"), "\nlook "): // the waiter stays
				refusal = renewals.Load().(string)
			}
			if refusal != "" {
				p.WriteError(refusal)
			}
			return refusal != ""
		})
		x := e.mutex(c, "x", ttl(30*time.Second))
		lease := e.try(x)
		e.try(e.mutex(c, "y", ttl(30*time.Second)))
		waiter := e.queued(x) // begins the subscription
		refused := func(with string, lines, errors int) {
			e.Helper()
			before := log.Count("renewal failed")
			renewals.Store(with)
			time.Sleep(15 * time.Second)
			renewals.Store("")
			time.Sleep(2 * time.Minute)
			if n := log.Count("renewal failed") - before; n < lines {
				e.Errorf("%s: %d renewals failed, want at least %d", with, n, lines)
			}
			log.Lines(e, errors, `"msg"="renewal failed" "error"=`)
			if faults.CutSubscriptions() == 0 {
				e.Fatal("there is no subscription")
			}
		}
		const noRights = "NOPERM this user has no permissions"
		renewals.Store(noRights)
		for i := range 50 {
			if _, err := e.mutex(c, fmt.Sprint("job-", i), ttl(10*time.Second)).TryLock(e.Context()); err == nil {
				e.Error("a refused attempt has the lock")
			}
		}
		refused(noRights, 4, 2)
		log.Lines(e, 1, "failed to withdraw")
		refused(noRights, 4, 4)
		refused("LOADING Redis is loading the dataset in memory", 2, 4)
		time.Sleep(time.Minute)
		e.unlock(lease)
		e.unlock(waiter.granted())
		equal(e, "lost leases", log.Count("lease lost"), 0)
		log.Lines(e, 1, "subscription test failed")
	})
}

// leftOnlyTombstones asserts that refused acquires of a name left nothing else: the refusals may have been those of others.
func (e *env) leftOnlyTombstones(name string) {
	e.Helper()
	keys := slices.DeleteFunc(e.Raw.Keys(e.Context(), "noonlock:{"+name+"}:*").Val(), func(key string) bool { return strings.Contains(key, ":tomb:") })
	if len(keys) > 0 {
		e.Errorf("refused acquires left %q", keys)
	}
}

// Keys of another type: each call and waiter gets ErrWrongKind, no lock is left, and the key is not changed. Inspect
// reports the holder, and a forced release works.
func TestFault32_WrongType(t *testing.T) {
	for _, part := range []string{"lock", "fence", "queue", "seen", "size"} {
		t.Run(part, func(t *testing.T) {
			onAllKinds(t, func(e *env) {
				if part == "size" && e.kind != "semaphore" {
					return
				}
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
				if seen := e.inspect(b, "held"); part != "lock" && (len(seen.Holders) != 1 || seen.Holders[0].Identity != "a") {
					e.Errorf("Inspect: %+v", seen)
				}
				if part == "lock" {
					mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
					mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld)
				} else {
					e.Pass(time.Second)
					e.Until("the lease is renewed", func() bool { return lease.Remaining() > 2500*time.Millisecond })
					if err := lease.Unlock(e.Context()); part == "size" {
						must(e, err)
					} else {
						mustIs(e, err, lockcore.ErrWrongKind)
					}
					equal(e, "the lock after its release", e.stored("held"), "")
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
				e.try(e.mutex(a, "stuck", ttl(time.Minute)))
				spoil("stuck")
				e.forced(1)(e.force(b, "stuck"))
				equal(e, "the lock after its forced release", e.stored("stuck"), "")
			})
		})
	}
}

// The server accepts no more connections than that for calls. Renewals use it, and waiters are served. The error of
// a Client without a connection names the cause, and is not ErrNotAcquired.
func TestFault44_105_NoMoreConnections(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a := e.Client("a")
		_, err := a.Inspect(e.Context(), "orders")
		must(e, err)
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", strconv.Itoa(e.connections(""))).Err())
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Second)))
		waiter := e.goLock(e.mutex(a, "orders", ttl(10*time.Second)))
		_, err = e.mutex(e.Client("b"), "free", ttl(10*time.Second)).TryLock(e.Context())
		if err == nil || errors.Is(err, lockcore.ErrNotAcquired) {
			e.Errorf("TryLock: %v, want what is wrong", err)
		}
		e.Pass(7 * time.Second)
		must(e, context.Cause(lease.Context()))
		if strings.Contains(e.Raw.Info(e.Context(), "stats").Val(), "rejected_connections:0\r") {
			e.Error("the server has refused no connection")
		}
		e.unlock(lease)
		e.unlock(waiter.granted())
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", "1000").Err())
		e.unlock(e.try(e.mutex(e.Client("b"), "free", ttl(10*time.Second))))
	})
}
