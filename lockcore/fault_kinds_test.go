package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The holder's machine is suspended for longer than the TTL. No timer has run, but its
// clock has advanced. The first call reports that the lease has ended, and Unlock does not
// affect the successor.
//
// Caught mutant: the context uses its timer only.
func TestFault05_MachineSuspended(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) { // on a busy machine, a reading of the user's clock can take too long
		clock := testenv.NewClock()
		opt, f := e.Link()
		a := e.ClientOn(clock.Now, opt, lockcore.Config{Identity: "a"})
		lease := e.try(e.mutex(a, "orders", ttl(2*time.Second)))
		cut := f.Partition() // a suspended machine sends nothing
		next := e.lock(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		clock.Advance(time.Hour)
		if lease.Context().Err() == nil || lease.Remaining() != 0 {
			e.Errorf("after an hour %v remain", lease.Remaining())
		}
		f.Heal()
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
		e.Pass(50 * time.Millisecond)
		if next.Context().Err() != nil || e.stored("orders") == "" || next.Token() <= lease.Token() {
			e.Errorf("the successor: %v, token %d after %d", next.Context().Err(), next.Token(), lease.Token())
		}
		e.unlock(next)
		lockcoretest.MustFire(e, cut)
	})
}

// Replies arrive one byte at a time.
//
// Caught mutant: a reader of replies that takes a part for the whole reply.
func TestFault10_RepliesByteByByte(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		trickle := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply})
		lease := e.lock(e.mutex(a, "orders", ttl(3*time.Second)))
		e.Pass(4 * time.Second) // renewed
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		waiter := e.queued(e.mutex(a, "orders", ttl(3*time.Second)))
		e.unlock(lease)
		e.unlock(waiter.granted())
		if trickle.Fired() < 5 {
			e.Errorf("%d replies trickled", trickle.Fired())
		}
	})
}

// The server restarts with an old snapshot, in which another lease holds the name. (Class
// D: the snapshot is out of date; tokens protect the resource.) The holder's lease ends at
// its next renewal. The other's lock is not renewed, and expires with its TTL.
//
// Caught mutant: renew without checking the holder.
func TestFault16_ClassD_OldSnapshot(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		old := e.try(e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 10 * time.Minute, NoRenewal: true}))
		e.keep("orders")
		e.unlock(old)
		lease := e.try(e.mutex(b, "orders", ttl(3*time.Second)))
		e.restore("orders")
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if held := e.refused(e.mutex(b, "orders", ttl(3*time.Second))); held.Holder != "a" || held.TTL < 9*time.Minute {
			e.Errorf("the error names %+v, want a and the remaining time", held)
		}
		waiter := e.queued(e.mutex(b, "orders", ttl(3*time.Second)))
		if n := e.Raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 { // as it ends in ten minutes
			e.Fatal("nothing held the name")
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		e.unlock(next)
	})
}

// A failover loses releases and grants, again and again: the server goes back to an earlier state, in which
// owners have entries that nobody holds any more, or has none of some that are held. (Class D.) A lease
// has a greater token than all earlier ones, or that of a valid lease of its owner in its process.
func TestFault17_ClassD_OwnersAfterFailovers(t *testing.T) {
	onBoth(t, func(e *env) {
		type holding struct {
			*lockcore.Lease
			of string // owner and process
		}
		clients := []*lockcore.Client{e.Client("a"), e.Client("b")}
		cfg := ttl(10 * time.Minute)
		stale := 0
		for round := range testenv.Size(20, 200) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			name := fmt.Sprintf("orders-%d", round)
			var held []holding
			kept, newest := false, uint64(0)
			for range 40 {
				if e.Bubble != nil { // the clock stands still
					e.Pass(time.Millisecond)
				}
				switch n := random.IntN(10); {
				case n < 2 && len(held) > 0:
					i := random.IntN(len(held))
					_ = held[i].Unlock(e.Context()) // the server may not have it any more
					held = slices.Delete(held, i, i+1)
				case n == 2 && e.Exists(e.key(name, "lock")):
					e.keep(name)
					kept = true
				case n == 3 && kept:
					e.restore(name)
					stale++
				case n == 4 && len(held) > 0:
					_ = lockcore.Downgrade(e.Context(), held[random.IntN(len(held))].Lease)
				default:
					process, owner := random.IntN(2), string("xy"[random.IntN(2)])
					h := holding{of: fmt.Sprintf("%s in process %d", owner, process)}
					rw := e.rw(clients[process], name, owner, cfg)
					acquire := rw.TryLock
					if random.IntN(2) == 0 {
						acquire = rw.TryRLock
					}
					var err error
					if h.Lease, err = acquire(e.Context()); err != nil {
						mustIs(e, err, lockcore.ErrNotAcquired)
						continue
					}
					beside := slices.ContainsFunc(held, func(o holding) bool {
						return o.of == h.of && o.Token() == h.Token() && o.Context().Err() == nil
					})
					if h.Token() <= newest && !beside {
						e.Errorf("seed %d: %s has token %d after %d", seed, h.of, h.Token(), newest)
					}
					newest = max(newest, h.Token())
					held = append(held, h)
				}
			}
			for _, h := range held {
				_ = h.Unlock(e.Context())
			}
		}
		if stale == 0 {
			e.Error("no state was restored")
		}
	})
}

// keep saves the lock and the counter of a name, and restore writes them back.
func (e *env) keep(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		must(e, e.Raw.Copy(e.Context(), e.key(name, part), e.key(name, "kept:"+part), 0, true).Err())
	}
}

func (e *env) restore(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		left := e.Raw.PTTL(e.Context(), e.key(name, "kept:"+part)).Val()
		must(e, e.Raw.Copy(e.Context(), e.key(name, "kept:"+part), e.key(name, part), 0, true).Err())
		must(e, e.Raw.PExpire(e.Context(), e.key(name, part), left).Err())
	}
}

// Leases of one owner are acquired and released while requests and replies are lost,
// repeated and cut off. The count is exact.
//
// Caught mutants: entries are a counter that is incremented and decremented; a repeated
// acquire adds an entry; a repeated release removes another's.
func TestFault27_CountIsExact(t *testing.T) {
	for _, kind := range []string{
		lockcoretest.SwallowReply, lockcoretest.ResetBefore, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest,
	} {
		t.Run(kind, func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.kind = "write" // for the names of scripts
				e.warmAll()
				a, f := e.Linked("a")
				m := e.reentrant(a, "orders", "me", ttl(3*time.Second))
				outer := e.try(m)
				const entries = 4
				var held []*lockcore.Lease
				for range entries {
					lost := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_acquire"), Count: 1})
					held = append(held, e.try(m))
					lost.Lift()
				}
				if s := e.storedOwned("orders"); len(s.entries) != 1+entries || s.counts["me"] != 1+entries {
					e.Errorf("the server has %d entries and counts %d, want %d", len(s.entries), s.counts["me"], 1+entries)
				}
				for _, lease := range held {
					if kind != lockcoretest.DuplicateRequest { // a repeated request hides the first answer, and nothing retries it
						lost := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_leave"), Count: 1})
						defer lost.Lift()
					}
					e.leave(lease)
				}
				e.leave(outer)
				if e.Exists(e.key("orders", "lock")) {
					e.Error("the key is left behind")
				}
			})
		})
	}
}

// Owned locks on a server that is out of memory. A reader confirms a grant and renews, a
// writer downgrades, one of two entries is released, and the queue is served. A free lock
// cannot be acquired.
//
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

// A script that never ends blocks the server until it is killed. Nothing is applied in the
// meantime. Leases and waiters continue afterwards.
//
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

// The server's clock is set back by an hour while the holder is dead, so its lock stays
// for that long. Inspect reports that, and ForceRelease frees the lock for the waiters.
//
// Caught mutant: the remaining time is computed from the requested TTL.
func TestFault36_ServerClockSetBackWhileTheHolderIsDead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dead, f := e.Linked("dead")
		c := e.Client("c")
		cfg := ttl(10 * time.Second)
		lease := e.try(e.mutex(dead, "orders", cfg))
		waiter := e.queued(e.mutex(c, "orders", cfg))
		cut := f.Partition()
		f.Cut()
		e.Bubble.StepClock(-time.Hour)
		e.Pass(time.Minute)
		if waiter.over() {
			e.Fatal("the lock is not stuck: this test proves nothing")
		}
		if held := e.refused(e.mutex(c, "orders", cfg)); held.TTL < 50*time.Minute || held.Holder != "dead" {
			e.Errorf("the error names %+v, want the hour", held)
		}
		if _, err := e.force(c, "orders"); err != nil {
			e.Fatal(err)
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		e.unlock(next)
		lockcoretest.MustFire(e, cut)
	})
}

// A Client does not read its messages, and the server closes its subscription when too
// many have accumulated. The Client subscribes again, and its waiters look.
//
// Caught mutant: no look after a reconnect (the next one is ten minutes away).
func TestFault42_SlowConsumer(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		must(e, e.Raw.ConfigSet(e.Context(), "client-output-buffer-limit", "pubsub 1mb 0 0").Err())
		a := e.Client("a")
		b, f := e.Linked("b")
		cfg := ttl(10 * time.Minute)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.queued(e.mutex(b, "orders", cfg))
		channel := "noonlock:ch:" + b.Process()
		cut := f.Partition()
		flood := strings.Repeat("x", 1<<20)
		e.Until("the server has ended the subscription", func() bool {
			return e.Raw.Publish(e.Context(), channel, flood).Val() == 0
		})
		e.Until("what it sent is held back", func() bool { return cut.Fired() > 0 })
		e.unlock(lease) // PUBLISH has no receiver
		f.Heal()
		e.unlock(waiter.granted())
	})
}

// The server accepts no more connections. Clients with connections continue. The error of
// a Client that needs one names the cause, and is not ErrNotAcquired.
//
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
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		e.unlock(lease)
		e.unlock(waiter.granted())
		must(e, e.Raw.ConfigSet(e.Context(), "maxclients", "1000").Err())
		e.unlock(e.try(e.mutex(e.Client("b"), "free", ttl(time.Second))))
	})
}
