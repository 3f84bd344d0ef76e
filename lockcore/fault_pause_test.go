package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A resource refuses a token smaller than one it has seen.
type resource struct {
	mu      sync.Mutex
	highest uint64
	writers []string
}

var errStaleToken = errors.New("stale token")

func (r *resource) write(token uint64, who string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest {
		return errStaleToken
	}
	r.highest = token
	r.writers = append(r.writers, who)
	return nil
}

// The holder's process is stopped for longer than its TTL. When it continues, its context
// is done before any call succeeds, and it cannot harm its successor.
//
// Caught mutant: the lease ends only when a renewal is answered "not mine".
func TestFault01_HolderFrozenPastItsTTL(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		frozen := e.startActor("holder")
		token := frozen.ask("try orders 3000").number("locked")
		if frozen.ask("check").text != "valid" {
			e.Fatal("it does not hold the lock")
		}
		frozen.Signal(syscall.SIGSTOP)
		next := e.lock(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		// The successor acquired a lock that is renewed, so the fault was injected.
		if next.Token() <= token {
			e.Errorf("token %d after %d", next.Token(), token)
		}
		frozen.Send("check") // waits in the pipe
		frozen.Signal(syscall.SIGCONT)
		if a := frozen.answer(); a.text != "ended" {
			e.Errorf("the first look after the pause says %q", a.text)
		}
		if a := frozen.ask("unlock"); a.text != "not-held" {
			e.Errorf("its Unlock says %q", a.text)
		}
		e.refused(e.mutex(e.Client("c"), "orders", ttl(time.Second)))
		if next.Context().Err() != nil {
			e.Error("the successor lost its lease")
		}
		e.unlock(next)
	})
}

// The process is frozen between the check and the write. The token protects the resource.
//
// Caught mutant: the token is read again from the counter instead of being kept from the
// grant (the stale holder then has the newest).
func TestFault02_FrozenBetweenCheckAndWrite(t *testing.T) {
	onAllKinds(t, func(e *env) {
		var db resource
		a, f := e.Linked("a")
		b := e.Client("b")
		stale := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		if stale.Context().Err() != nil {
			e.Fatal("not held")
		}
		cut := f.Partition()
		fresh := e.lock(e.mutex(b, "orders", ttl(20*time.Second)))
		if err := db.write(fresh.Token(), "b"); err != nil {
			e.Fatalf("the holder's write: %v", err)
		}
		// The process continues after its check, and the network works again.
		f.Heal()
		mustIs(e, db.write(stale.Token(), "a"), errStaleToken)
		if len(db.writers) != 1 {
			e.Errorf("writes: %v", db.writers)
		}
		lockcoretest.MustFire(e, cut)
	})
}

// The process is frozen after it has sent the request. The TTL may have passed when it
// reads the grant, which must then be ignored.
//
// Caught mutant: validity is counted from the reply instead of from before the request.
func TestFault03_FrozenBetweenRequestAndReply(t *testing.T) {
	for _, taken := range []bool{true, false} {
		name := "name still free"
		if taken {
			name = "name taken in the meantime"
		}
		t.Run(name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				e.warmAll()
				clock := testenv.NewClock()
				opt, f := e.Link()
				a := e.ClientOn(clock.Now, opt, lockcore.Config{Identity: "a"})
				b := e.Client("b")
				cfg := ttl(10 * time.Second)
				rule := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
				type result struct {
					lease *lockcore.Lease
					err   error
				}
				done := make(chan result, 1)
				m := e.mutex(a, "orders", cfg)
				go func() {
					lease, err := m.TryLock(e.Context())
					done <- result{lease, err}
				}()
				e.WaitIdle()
				if rule.Fired() != 1 || e.stored("orders") == "" {
					e.Fatal("the reply is not held back")
				}
				// Both clocks move by more than the TTL; no timer runs.
				clock.Advance(11 * time.Second)
				e.Bubble.StepClock(11 * time.Second)
				var other *lockcore.Lease
				if taken {
					other = e.try(e.mutex(b, "orders", cfg))
				}
				rule.Lift()
				r := <-done
				if taken {
					var held *lockcore.HeldError
					if r.lease != nil || !errors.As(r.err, &held) {
						e.Fatalf("lease %v, error %v: want a HeldError", r.lease, r.err)
					}
					if held.Holder != "b" || held.TTL <= 0 {
						e.Errorf("the error names %+v, want the content of the last answer", held)
					}
					e.unlock(other)
					return
				}
				if r.err != nil {
					e.Fatal(r.err)
				}
				// The repeated acquire extended the lock, and validity counts from then.
				if left := r.lease.Remaining(); left <= 0 || left > e.pttl("orders") {
					e.Errorf("%v remain here, %v at the server", left, e.pttl("orders"))
				}
			})
		})
	}
}

// Renewals are not answered. The lease ends at the local deadline, while the server still
// keeps the lock.
//
// Caught mutant: the goroutine that checks the deadlines waits for renewals.
func TestFault04_RenewalsStarve(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a := e.Client("a")
		lease := e.try(e.mutex(a, "orders", ttl(10*time.Second)))
		e.Pass(time.Minute)
		if lease.Context().Err() != nil {
			e.Fatal("not renewed")
		}
		e.Bubble.Hang()
		hung := e.Clock()
		deadline := hung + lease.Remaining()
		mustIs(e, e.ended(lease), lockcore.ErrLeaseExpired)
		if at := e.Clock(); at != deadline {
			e.Errorf("it ended at %v, its deadline was %v", at, deadline)
		}
		e.Bubble.Unhang()
		e.WaitIdle()
		// The hanging renewals have now been executed. They revive nothing.
		if lease.Context().Err() == nil || lease.Remaining() != 0 {
			e.Error("a late reply has revived the lease")
		}
		mustIs(e, lease.Unlock(e.Context()), lockcore.ErrNotHeld, lockcore.ErrLeaseExpired)
	})
}

// The reply to a renewal arrives after the local deadline, and before the deadline that it
// would have set. It revives nothing, because the work may have stopped.
//
// Caught mutant: the reply to a renewal counts at any time.
func TestFault04_LateReplyRevivesNothing(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		clock := testenv.NewClock()
		opt, f := e.Link()
		a := e.ClientOn(clock.Now, opt, lockcore.Config{})
		lease := e.try(e.mutex(a, "orders", ttl(9*time.Second)))
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_renew"), Count: 1})
		e.Pass(3 * time.Second)
		if late.Fired() != 1 {
			e.Fatal("no renewal is under way")
		}
		// The process is paused past its deadline: no timer runs.
		clock.Advance(lease.Remaining() + time.Millisecond)
		late.Lift()
		e.WaitIdle()
		if lease.Context().Err() == nil || lease.Remaining() != 0 {
			e.Errorf("the late reply revived the lease for %v", lease.Remaining())
		}
		mustIs(e, context.Cause(lease.Context()), lockcore.ErrLeaseExpired)
	})
}

// The process of the first waiter is stopped, and its connections stay open. It does not
// confirm the grant, which lapses after a second, and the next waiter is served. When the
// process continues, it is served in turn.
//
// Caught mutant: the grant lasts for the waiter's whole TTL (here 10 minutes).
func TestFault06_FrozenWaiter(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		a, b := e.Client("a"), e.Client("b")
		lease := e.try(e.mutex(a, "orders", ttl(20*time.Second)))
		frozen := e.startActor("waiter")
		frozen.Send("lock orders 600000")
		e.Until("it is queued", func() bool { return e.queueLength("orders") == 1 })
		waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
		frozen.Signal(syscall.SIGSTOP)
		e.unlock(lease)
		if held := e.refused(e.mutex(a, "orders", ttl(time.Second))); held.Holder != "waiter" {
			e.Errorf("the lock was given to %q: the fault was not injected", held.Holder)
		}
		next := waiter.granted()
		frozen.Signal(syscall.SIGCONT)
		e.Until("it is queued again", func() bool { return e.queueLength("orders") == 1 })
		e.unlock(next)
		if token := frozen.answer().number("locked"); token <= next.Token() {
			e.Errorf("token %d after %d", token, next.Token())
		}
		if a := frozen.ask("unlock"); a.text != "unlocked" {
			e.Errorf("Unlock says %q", a.text)
		}
	})
}

// The holder's process is killed. The first waiter acquires the lock when it expires.
//
// Caught mutant: only the holder's message wakes the first waiter (no timer at the lock's
// end, and a TTL of ten minutes until the next look).
func TestFault54_HolderKilled(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		holder := e.startActor("holder")
		token := holder.ask("try orders 3000").number("locked")
		waiter := e.queued(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		behind := e.queued(e.mutex(e.Client("c"), "orders", ttl(10*time.Minute)))
		holder.Signal(syscall.SIGKILL)
		holder.WaitForEnd()
		killed := e.Clock()
		next := waiter.granted()
		// How soon it acquires is asserted in virtual time, below.
		e.Logf("successor %v after the kill, TTL 3 s", e.Clock()-killed)
		if next.Token() <= token {
			e.Errorf("token %d after %d", next.Token(), token)
		}
		e.unlock(next)
		e.unlock(behind.granted())
	})
}

// The successor of a holder that dies acquires the lock within TTL + 0.5 s.
//
// Caught mutant: as above.
func TestFault54_SuccessorInTime(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		a, f := e.Linked("a")
		e.try(e.mutex(a, "orders", ttl(10*time.Second)))
		waiter := e.queued(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
		e.Pass(4 * time.Minute) // the head's first look at the end was long ago
		died := e.Clock()
		cut := f.Partition()
		if f.Cut() == 0 {
			e.Fatal("the dead had no connection")
		}
		next := waiter.granted()
		if took := e.Clock() - died; took > 10500*time.Millisecond {
			e.Errorf("succeeded after %v", took)
		}
		lockcoretest.MustFire(e, cut)
		e.unlock(next)
	})
}
