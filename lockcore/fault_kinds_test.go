package lockcore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The holder's machine is suspended beyond the TTL: no timer of it has run, its clock
// has gone on. Its first look says that the lease is over, and its Unlock leaves the
// successor alone.
//
// Caught mutant: the context looks at its timer only.
func TestFault05_MachineSuspended(t *testing.T) {
	onAllKinds(t, func(e *env) {
		clock := lockcoretest.NewClock()
		opt, f := e.link()
		a := e.clientWith(opt, lockcore.Config{Identity: "a", Clock: clock.Now})
		lease := e.try(e.mutex(a, "orders", ttl(2*time.Second)))
		cut := f.Partition() // what it does while it is suspended: nothing
		next := e.lock(e.mutex(e.client("b"), "orders", ttl(20*time.Second)))
		clock.Advance(time.Hour)
		if lease.Context().Err() == nil || lease.Remaining() != 0 {
			e.Errorf("after an hour %v remain", lease.Remaining())
		}
		f.Heal()
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
		e.pass(50 * time.Millisecond)
		if next.Context().Err() != nil || e.stored("orders") == "" || next.Token() <= lease.Token() {
			e.Errorf("the successor: %v, token %d after %d", next.Context().Err(), next.Token(), lease.Token())
		}
		e.unlock(next)
		lockcoretest.MustFire(e, cut)
	})
}

// Replies arrive one byte at a time.
//
// Caught mutant: none of the scripts; a reader of replies that takes what has come for
// the whole.
func TestFault10_RepliesByteByByte(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		a, f := e.linked("a")
		trickle := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.TrickleReply})
		lease := e.lock(e.mutex(a, "orders", ttl(3*time.Second)))
		e.pass(4 * time.Second) // renewed
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		waiter := e.inLine(e.mutex(a, "orders", ttl(3*time.Second)))
		e.unlock(lease)
		e.unlock(waiter.granted())
		if trickle.Fired() < 5 {
			e.Errorf("%d replies trickled", trickle.Fired())
		}
	})
}

// The server comes back with an old snapshot, in which another holds the name. (Class
// D: what the snapshot says may be over; the token tells.) The holder is told, nobody
// renews the other's hold, and it ends with its TTL.
//
// Caught mutant: renew without a look at who holds.
func TestFault16_ClassD_OldSnapshot(t *testing.T) {
	onAllKinds(t, func(e *env) {
		a, b := e.client("a"), e.client("b")
		old := e.try(e.mutex(a, "orders", lockcore.LeaseConfig{TTL: 10 * time.Minute, NoRenewal: true}))
		e.keep("orders")
		e.unlock(old)
		lease := e.try(e.mutex(b, "orders", ttl(3*time.Second)))
		e.restore("orders")
		mustIs(e, e.ended(lease), lockcore.ErrLeaseLost)
		if held := e.refused(e.mutex(b, "orders", ttl(3*time.Second))); held.Holder != "a" || held.TTL < 9*time.Minute {
			e.Errorf("told of %+v, want a and what is left", held)
		}
		waiter := e.inLine(e.mutex(b, "orders", ttl(3*time.Second)))
		if n := e.raw.Del(e.Context(), e.key("orders", "lock")).Val(); n != 1 { // as it ends in ten minutes
			e.Fatal("nothing held the name")
		}
		next := waiter.granted()
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		e.unlock(next)
	})
}

// keep puts the lock and the counter of a name aside, and restore brings them back.
func (e *env) keep(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		must(e, e.raw.Copy(e.Context(), e.key(name, part), "kept:"+part, 0, true).Err())
	}
}

func (e *env) restore(name string) {
	e.Helper()
	for _, part := range []string{"lock", "fence"} {
		left := e.raw.PTTL(e.Context(), "kept:"+part).Val()
		must(e, e.raw.Copy(e.Context(), "kept:"+part, e.key(name, part), 0, true).Err())
		must(e, e.raw.PExpire(e.Context(), e.key(name, part), left).Err())
	}
}

// Entries of one owner are asked for and given back while requests and replies are
// lost, repeated and cut off: the count is exact.
//
// Caught mutants: an entry is a number that is raised and lowered; a repeated acquire
// adds an entry; a repeated release takes another's.
func TestFault27_CountIsExact(t *testing.T) {
	for _, kind := range []lockcoretest.Kind{
		lockcoretest.SwallowReply, lockcoretest.ResetBefore, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			onBoth(t, func(e *env) {
				e.kind = "reentrant" // for the names of scripts
				e.warmAll()
				a, f := e.linked("a")
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
					e.Errorf("%d entries stand at the server, %d are counted, want %d", len(s.entries), s.counts["me"], 1+entries)
				}
				for i, lease := range held {
					if kind != lockcoretest.DuplicateRequest { // which hides the first answer, with nobody to ask again
						lost := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("mutex_leave"), Count: 1})
						defer lost.Lift()
					}
					e.leave(lease, entries-i)
				}
				e.leave(outer, 0)
				if e.exists(e.key("orders", "lock")) {
					e.Error("the key is left behind")
				}
			})
		})
	}
}

// Out of memory: what the owned locks must do all the same. A reader confirms a grant
// and renews, a writer downgrades, one of two entries is released, and the line is
// served; a name is not taken anew.
//
// Caught mutants: any HSET that comes before what works without memory.
func TestFault31_OutOfMemoryOwned(t *testing.T) {
	t.Parallel()
	e := realEnv(t, "maxmemory-policy noeviction")
	full := func(bytes string) { must(e, e.raw.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	a, b := e.client("a"), e.client("b")
	cfg := ttl(3 * time.Second)
	first := e.try(e.rw(a, "orders", "a", cfg))
	second := e.try(e.rw(a, "orders", "a", ttl(30*time.Second)))
	reader := e.inLine(reads{e.rw(b, "orders", "b", cfg)})
	writer := e.inLine(e.rw(b, "orders", "w", cfg))
	full("1")
	e.leave(second, 1)
	must(e, first.Downgrade(t.Context()))
	read := reader.granted() // and with it the other's key end is later than its own
	renewals := e.calls("pexpireat")
	e.until("both were renewed", func() bool { return e.calls("pexpireat") >= renewals+6 })
	if first.Context().Err() != nil || read.Context().Err() != nil {
		t.Errorf("a lease ended: %v, %v", context.Cause(first.Context()), context.Cause(read.Context()))
	}
	if _, err := e.rw(a, "fresh", "a", cfg).TryLock(t.Context()); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("TryLock: %v, want the server's refusal", err)
	}
	e.leave(first, 0)
	e.leave(read, 0)
	lease := writer.granted()
	full("0")
	e.unlock(lease)
	if keys := e.raw.Keys(t.Context(), "noonlock:{fresh}:*").Val(); len(keys) > 0 {
		t.Errorf("the refused acquire left %v", keys)
	}
}

// A script that never ends holds the server up until it is killed. Nothing was applied
// meanwhile, and all goes on behind it.
//
// Caught mutant: BUSY is an error that is returned.
func TestFault33_BusyServer(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.client("a"), e.client("b")
		lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
		waiter := e.inLine(e.mutex(b, "orders", ttl(20*time.Second)))
		must(e, e.raw.ConfigSet(e.Context(), "lua-time-limit", "20").Err())
		killed := make(chan error, 1)
		hog := redis.NewClient(&redis.Options{Addr: e.real.Addr(), ReadTimeout: -1, MaxRetries: -1})
		defer hog.Close()
		go func() { killed <- hog.Eval(context.Background(), "while true do end", nil).Err() }()
		e.until("the server is busy", func() bool { return redis.HasErrorPrefix(e.raw.Get(e.Context(), "x").Err(), "BUSY") })
		free := e.goLock(e.mutex(b, "other", ttl(20*time.Second)))
		done := make(chan error, 1)
		go func() { done <- lease.Unlock(e.Context()) }()
		for range 20 { // for as long as this takes, everybody is told that it is busy
			if err := e.raw.Get(e.Context(), "x").Err(); !redis.HasErrorPrefix(err, "BUSY") {
				e.Fatalf("not busy any more: %v", err)
			}
		}
		must(e, e.raw.ScriptKill(e.Context()).Err())
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

// The server's clock is set back by an hour while the holder is dead: its lock is stuck
// for that long. That is told, and an admin can free it for those in line.
//
// Caught mutant: the end of what is held is told from the TTL that was asked for.
func TestFault36_ServerClockSetBackWhileTheHolderIsDead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		dead, f := e.linked("dead")
		c := e.client("c")
		cfg := ttl(10 * time.Second)
		lease := e.try(e.mutex(dead, "orders", cfg))
		waiter := e.inLine(e.mutex(c, "orders", cfg))
		cut := f.Partition()
		f.Cut()
		e.bubble.StepClock(-time.Hour)
		e.pass(time.Minute)
		if waiter.over() {
			e.Fatal("the lock is not stuck: this test proves nothing")
		}
		if held := e.refused(e.mutex(c, "orders", cfg)); held.TTL < 50*time.Minute || held.Holder != "dead" {
			e.Errorf("told of %+v, want the hour", held)
		}
		if _, err := c.ForceRelease(e.Context(), "orders"); err != nil {
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

// A Client that does not read its messages: the server ends its subscription when too
// many have piled up. It subscribes again and looks.
//
// Caught mutant: no look after a reconnect (the next one is ten minutes away).
func TestFault42_SlowConsumer(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		must(e, e.raw.ConfigSet(e.Context(), "client-output-buffer-limit", "pubsub 1mb 0 0").Err())
		a := e.client("a")
		b, f := e.linked("b")
		cfg := ttl(10 * time.Minute)
		lease := e.try(e.mutex(a, "orders", cfg))
		waiter := e.inLine(e.mutex(b, "orders", cfg))
		channel := "noonlock:ch:" + b.Process()
		cut := f.Partition()
		flood := strings.Repeat("x", 1<<20)
		e.until("the server has ended the subscription", func() bool {
			return e.raw.Publish(e.Context(), channel, flood).Val() == 0
		})
		e.until("what it sent is held back", func() bool { return cut.Fired() > 0 })
		e.unlock(lease) // nobody hears, and that is known
		f.Heal()
		e.unlock(waiter.granted())
	})
}

// The server accepts no more connections: who has some goes on, who needs one is told
// what is wrong, and not that another holds the lock.
//
// Caught mutant: an error of a dial is ErrNotAcquired.
func TestFault44_NoMoreConnections(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a := e.client("a")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		waiter := e.inLine(e.mutex(a, "orders", ttl(3*time.Second)))
		e.until("it was renewed once, on a connection of its own", func() bool { return lease.Remaining()+e.clock() > 4*time.Second })
		most := e.connections("")
		must(e, e.raw.ConfigSet(e.Context(), "maxclients", strconv.Itoa(most)).Err())
		if err := redis.NewClient(e.options(e.real.Addr())).Ping(e.Context()).Err(); err == nil {
			e.Fatal("the server takes more connections")
		}
		_, err := e.mutex(e.client("b"), "free", ttl(time.Second)).TryLock(e.Context())
		if err == nil || errors.Is(err, lockcore.ErrNotAcquired) {
			e.Errorf("TryLock: %v, want what is wrong", err)
		}
		e.pass(3500 * time.Millisecond)
		if lease.Context().Err() != nil {
			e.Errorf("the lease ended: %v", context.Cause(lease.Context()))
		}
		e.unlock(lease)
		e.unlock(waiter.granted())
		must(e, e.raw.ConfigSet(e.Context(), "maxclients", "1000").Err())
		e.unlock(e.try(e.mutex(e.client("b"), "free", ttl(time.Second))))
	})
}
