package lockcore_test

import (
	"errors"
	"strconv"
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

// The holder's process is stopped for longer than its TTL. When it continues, its context is done before any call
// succeeds, and it cannot harm its successor.
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
// Caught mutant: the token is read again from the counter instead of being kept from the grant (the stale holder
// then has the newest).
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

// Renewals are not answered. The lease ends at the local deadline, while the server still keeps the lock.
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

// The process is frozen after it has sent the request. The TTL may have passed when it reads the grant, which must
// then be ignored.
// Caught mutant: validity is counted from the reply instead of from before the request.
func TestFault03_FrozenBetweenRequestAndReply(t *testing.T) {
	for name, taken := range map[string]bool{"name still free": false, "name taken in the meantime": true} {
		t.Run(name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				e.warmAll()
				clock := testenv.NewClock()
				opt, f := e.Link()
				m := e.mutex(e.ClientOn(clock.Now, opt, lockcore.Config{}), "orders", ttl(10*time.Second))
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
				p := e.going(m.TryLock)
				e.WaitIdle()
				if late.Fired() != 1 || e.stored("orders") == "" {
					e.Fatal("the reply is not held back")
				}
				// Both clocks move by more than the TTL; no timer runs.
				clock.Advance(11 * time.Second)
				e.Bubble.StepClock(11 * time.Second)
				if taken {
					e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Second)))
				}
				late.Lift()
				lease, err := p.wait()
				if held, ok := errors.AsType[*lockcore.HeldError](err); taken && (!ok || held.Holder != "b" || held.TTL <= 0) {
					e.Errorf("lease %v, error %v: want a HeldError with the content of the last answer", lease, err)
				}
				// The repeated acquire extended the lock, and validity counts from then.
				if !taken && (err != nil || lease.Remaining() <= 0 || lease.Remaining() > e.pttl("orders")) {
					e.Errorf("%v, or longer than the server's %v", err, e.pttl("orders"))
				}
			})
		})
	}
}

// The holder dies, and with it the first waiters, as goroutines of one process. The next waiter acquires the lock
// within TTL + 0.5 s.
// Caught mutants: only the holder's message wakes the first waiter; only the head of the queue looks when the lock
// ends.
func TestFault54_SuccessorInTime(t *testing.T) {
	for _, own := range []int{0, 1, 3, 20, 31} {
		t.Run(strconv.Itoa(own), func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				a, f := e.Linked("a")
				defer f.Heal()
				e.try(e.mutex(a, "orders", ttl(10*time.Second)))
				for range own {
					e.queued(e.mutex(a, "orders", ttl(10*time.Second)))
				}
				next := e.queued(e.mutex(e.Client("b"), "orders", ttl(10*time.Minute)))
				e.Pass(4*time.Minute + 4*time.Second) // the first look at the end was long ago
				cut := f.Partition()
				if f.Cut() == 0 {
					e.Fatal("the dead had no connection")
				}
				died := e.Clock()
				next.granted()
				if took := e.Clock() - died; took > 10500*time.Millisecond {
					e.Errorf("succeeded after %v", took)
				}
				lockcoretest.MustFire(e, cut)
			})
		})
	}
}

// The holder's machine is suspended for longer than the TTL. No timer has run, but its clock has advanced. The first
// call reports that the lease has ended, and Unlock does not affect the successor.
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
