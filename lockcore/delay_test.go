package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// The names of two locks.
const (
	firstName  = "orders"
	secondName = "stock"
)

// delayed returns a Client with LockDelay.
func (e *env) delayed(identity string, delay time.Duration) *lockcore.Client {
	e.Helper()
	return e.ClientWith(e.Direct(), lockcore.Config{Identity: identity, LockDelay: delay})
}

// refusedFor asserts that TryLock is refused during a delay, and returns the rest of it.
func (e *env) refusedFor(m locker) time.Duration {
	e.Helper()
	_, err := m.TryLock(e.Context())
	var delayed *wire.DelayError
	if !errors.As(err, &delayed) || !errors.Is(err, lockcore.ErrNotAcquired) || !lockcore.IsTemporary(err) || delayed.Left <= 0 {
		e.Fatalf("TryLock: %v, want ErrNotAcquired and a DelayError", err)
	}
	return delayed.Left
}

// The record of a server's history is renewed whenever data may be missing, and at no other time.
func TestHistoriesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const key = "noonlock:history"
		none, a, b := strings.Repeat("0", 40), strings.Repeat("a", 40), strings.Repeat("b", 40)
		var info map[string]string
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			if cmd == "INFO" {
				p.WriteBulk(info[args[0]])
			}
			return cmd == "INFO"
		})
		old, now := e.ms(-5*time.Second), e.ms(0)
		for _, row := range []struct {
			name                string
			stored              string
			run, id, second     string
			known               string
			reached, offset     int
			history, age, since string
		}{
			{name: "first use", run: "r", id: a, second: none, history: "r " + a + " " + now, age: "0 7 1"},
			{name: "known", stored: "r " + a + " " + old, run: "r", id: a, second: none, history: "r " + a + " " + old, age: "5000 7 0"},
			{name: "known, and once promoted", stored: "r " + a + " " + old, run: "r", id: a, second: b, history: "r " + a + " " + old, age: "5000 7 0"},
			{name: "restarted", stored: "s " + b + " " + old, run: "r", id: a, second: none, history: "r " + a + " " + now, age: "0 7 2"},
			{name: "restarted with the id of its snapshot", stored: "s " + b + " " + old, run: "r", id: a, second: b, history: "r " + a + " " + now, age: "0 7 2"},
			{name: "promoted", stored: "s " + a + " " + old, run: "r", id: b, second: a, history: "r " + b + " " + now, age: "0 7 2"},
			{name: "demoted and promoted again", stored: "r " + b + " " + old, run: "r", id: a, second: b, history: "r " + a + " " + now, age: "0 7 2"},
			{name: "its first replica", stored: "r " + b + " " + old, run: "r", id: a, second: none, history: "r " + a + " " + old, age: "5000 7 0"},
			{name: "the same id of another process", stored: "s " + a + " " + old, run: "r", id: a, second: none, history: "r " + a + " " + now, age: "0 7 2"},
			{name: "not behind", stored: "r " + a + " " + old, run: "r", id: a, second: none, known: "r " + a + " " + old, reached: 7, history: "r " + a + " " + old, age: "5000 7 0"},
			{name: "behind", stored: "r " + a + " " + old, run: "r", id: a, second: none, known: "r " + a + " " + old, reached: 8, history: "r " + a + " " + now, age: "0 7 3"},
			{name: "behind another history", stored: "r " + a + " " + old, run: "r", id: a, second: none, known: "r " + b + " " + old, reached: 8, history: "r " + a + " " + old, age: "5000 7 0"},
			{name: "not a record", stored: "r " + a, run: "r", id: a, second: none, history: "r " + a + " " + now, age: "0 7 1"},
			{name: "more than a record", stored: "x r " + a + " " + old + " ", run: "r", id: a, second: none, history: "r " + a + " " + now, age: "0 7 1"},
		} {
			info = map[string]string{
				"server":      "# Server\r\nredis_version:7\r\nrun_id:" + row.run + "\r\n",
				"replication": fmt.Sprintf("# Replication\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\nmaster_repl_offset:7\r\nsecond_repl_offset:1\r\n", row.id, row.second),
			}
			must(e, e.Raw.Del(e.Context(), key).Err())
			if row.stored != "" {
				must(e, e.Raw.Set(e.Context(), key, row.stored, 0).Err())
			}
			equal(e, row.name, e.run("lock_history", []string{key}, row.known, row.reached), "["+row.history+" "+row.age+"]")
			equal(e, row.name+": the record", e.Raw.Get(e.Context(), key).Val(), row.history)
			age, _, _ := strings.Cut(row.age, " ")
			equal(e, row.name+", again", e.run("lock_history", []string{key}, row.known, 0), "["+row.history+" "+age+" 7 0]")
		}
		whole := info
		for section, text := range whole {
			for line := range strings.Lines(text) {
				if !strings.Contains(line, "id") && !strings.Contains(line, "master_repl_offset") {
					continue
				}
				info = map[string]string{"server": whole["server"], "replication": whole["replication"]}
				info[section] = strings.ReplaceAll(text, line, "")
				equal(e, "without "+line, e.run("lock_history", []string{key}, "", 0), "[]")
			}
		}
	})
}

// Nothing is granted for the delay after a restart, with or without data, and at the first use of a server. TryLock
// says so, and Lock waits. Clients that start meanwhile obey. Leases that the server has are renewed.
func TestFault89_RestartDelaysGrants(t *testing.T) {
	onOneServer(t, func(e *env) {
		const delay = 4 * time.Second
		cfg := ttl(delay)
		began := e.Clock()
		a := e.delayed("a", delay)
		if left := e.refusedFor(e.mutex(a, firstName, cfg)); left > delay {
			e.Errorf("the delay is %v at the first use", left)
		}
		held := e.lock(e.mutex(a, firstName, cfg))
		if took := e.Clock() - began; took < delay {
			e.Errorf("Lock returned after %v", took)
		}
		idle := e.mutex(e.delayed("b", delay), secondName, cfg) // without a subscription
		e.unlock(e.try(idle))

		restarts := e.Clock() // a renewal may reach the server before Restart returns
		if e.Bubble != nil {
			must(e, e.Bubble.Restart())
		} else {
			must(e, e.Raw.Save(e.Context()).Err())
			e.Real.Kill()
			e.Real.Restart(e)
		}
		e.warmAll() // otherwise, the first request only finds that its script is unknown
		e.refusedFor(idle)
		e.refusedFor(e.mutex(a, secondName, cfg))
		c := e.delayed("c", delay)
		e.refusedFor(e.mutex(c, secondName, cfg))
		next := e.lock(e.mutex(c, secondName, cfg))
		if took := e.Clock() - restarts; took < delay {
			e.Errorf("after the restart, Lock returned after %v", took)
		}
		must(e, held.Context().Err())
		e.unlock(held)
		e.unlock(next)

		held = e.lock(e.mutex(a, firstName, cfg))
		waiter := e.queued(e.mutex(c, firstName, cfg))
		loses := e.Clock()
		e.LoseData()
		mustIs(e, e.ended(held), lockcore.ErrLeaseLost)
		next = waiter.granted()
		if took := e.Clock() - loses; took < delay {
			e.Errorf("after the loss, Lock returned after %v", took)
		}
		e.unlock(next)
	})
}

// The delay is logged and counted once per loss, and refused calls are counted. The end of a wait names it.
func TestLockDelayIsReported(t *testing.T) {
	inBubble(t, func(e *env) {
		var log testenv.Log
		reg := prometheus.NewRegistry()
		c := e.ClientWith(e.Direct(), lockcore.Config{LockDelay: 10 * time.Second, Registerer: reg, Logger: log.Info("")})
		m := e.mutex(c, "orders", ttl(3*time.Second))
		for restarts := range 2 {
			e.refusedFor(m)
			e.refusedFor(m)
			e.WaitIdle() // another goroutine writes the log
			if n, lines := metric(e, reg, "noonlock_lock_delays_total"), log.Count("grants delayed"); int(n) != restarts+1 || lines != restarts+1 {
				e.Errorf("after %d restarts, %v delays were counted and %d logged", restarts, n, lines)
			}
			must(e, e.Bubble.Restart())
			e.Pass(10 * time.Second)
		}
		e.refusedFor(m)
		if log.Count("no record of the server's history", "10s") != 1 || log.Count("restarted or promoted") < 1 {
			e.Errorf("the log is:\n%s", &log)
		}
		equal(e, "counted refusals",
			metric(e, reg, "noonlock_acquires_total", "kind", "mutex", "outcome", "delayed"), 5)
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		_, err := m.Lock(ctx)
		mustIs(e, err, lockcore.ErrNotAcquired, context.DeadlineExceeded)
		var delayed *wire.DelayError
		if !errors.As(err, &delayed) || delayed.Delay != 10*time.Second || !strings.Contains(err.Error(), "Config.LockDelay 10s: nothing is granted for another ") {
			e.Errorf("Lock: %v", err)
		}
		began := e.Clock()
		pending := e.goLock(m)
		e.Pass(time.Second)
		must(e, c.Close(e.Context()))
		if _, err := pending.wait(); !errors.Is(err, lockcore.ErrClosed) || e.Clock()-began > 2*time.Second {
			e.Errorf("Lock of a closed Client: %v", err)
		}
	})
}

// A server's clock that is set back does not extend the delay.
func TestLockDelayAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(e *env) {
		const delay = 10 * time.Second
		a := e.mutex(e.delayed("a", delay), "orders", ttl(3*time.Second))
		e.refusedFor(a)
		e.Bubble.StepClock(-time.Hour)
		equal(e, "how long a new Client waits",
			e.refusedFor(e.mutex(e.delayed("b", delay), "orders", ttl(3*time.Second))), delay)
		e.Pass(delay)
		e.unlock(e.try(a))
		e.Bubble.Faults().Cut()
		e.unlock(e.try(a)) // on a new connection
	})
}

// While the slot with the record of a primary moves, grants are delayed, and nothing else.
func TestLockDelayWhileTheRecordMoves(t *testing.T) {
	inBubble(t, func(e *env) {
		const delay = 2 * time.Second
		e.unlock(e.lock(e.mutex(e.delayed("a", delay), firstName, ttl(delay)))) // there is a record
		var log testenv.Log
		c := e.ClientWith(e.Direct(), lockcore.Config{LockDelay: delay, Logger: log.Info("")})
		m, held := e.mutex(c, firstName, ttl(delay)), e.mutex(c, secondName, ttl(delay))
		lease := e.try(held)
		asks := e.script("lock_history")
		for _, refusal := range []string{"ASK 0 127.0.0.1:7001", "TRYAGAIN Multiple keys"} {
			e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
				moves := asks(append([]string{cmd}, args...))
				if moves {
					p.WriteError(refusal)
				}
				return moves
			})
			e.Bubble.Faults().Cut()
			e.refusedFor(m)
			e.unlock(e.lock(m))
			must(e, lease.Context().Err())
		}
		e.unlock(lease)
		if log.Count("moving to another node") == 0 {
			e.Errorf("the log is:\n%s", &log)
		}
	})
}

// The record cannot be written while the server is out of memory. Leases are released and renewed, and grants are
// delayed.
func TestFault31_NoMemoryForTheHistory(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	c := e.delayed("a", 3*time.Second)
	held := e.lock(e.mutex(c, firstName, ttl(3*time.Second)))
	must(e, e.Raw.Del(e.Context(), "noonlock:history").Err())
	must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "1").Err())
	must(e, e.Raw.ClientKillByFilter(e.Context(), "type", "normal", "skipme", "yes").Err())
	e.refusedFor(e.mutex(c, secondName, ttl(3*time.Second)))
	e.unlock(held)
	must(e, e.Raw.ConfigSet(e.Context(), "maxmemory", "0").Err())
	e.unlock(e.lock(e.mutex(c, secondName, ttl(3*time.Second))))
}

// Invalid delays are refused, and so are leases that outlive the delay, and a server that does not report its ids.
func TestLockDelayConfig(t *testing.T) {
	inBubble(t, func(e *env) {
		for _, d := range []time.Duration{-time.Second, time.Millisecond, 25 * time.Hour, time.Second + 1} {
			_, err := lockcore.New(redis.NewClient(e.Direct()), lockcore.Config{LockDelay: d})
			refusal(e, err, "Config.LockDelay", "")
		}
		_, err := e.delayed("a", time.Second).Mutex("orders", ttl(2*time.Second))
		refusal(e, err, "LeaseConfig.TTL", "Config.LockDelay (1s)")
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			if cmd == "INFO" {
				p.WriteBulk("# Server\r\n")
			}
			return cmd == "INFO"
		})
		_, err = e.mutex(e.delayed("a", time.Second), "orders", ttl(time.Second)).TryLock(e.Context())
		if err == nil || !strings.Contains(err.Error(), "Config.LockDelay needs a server that reports") || lockcore.IsTemporary(err) {
			e.Errorf("TryLock: %v", err)
		}
	})
}
