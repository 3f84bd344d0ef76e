package lockcore_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The holder's process is stopped for longer than its TTL. When it continues, its context is done before any call
// succeeds, and it cannot harm its successor.
func TestFault01_HolderFrozenPastItsTTL(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		frozen := e.startActor("holder", e.Real.Addr())
		token := frozen.ask("try orders 3000").number("locked")
		equal(e, "its lease", frozen.ask("check").text, "valid")
		frozen.signal(syscall.SIGSTOP)
		next := e.lock(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		// The successor acquired a lock that is renewed, so the fault was injected.
		if next.Token() <= token {
			e.Errorf("token %d after %d", next.Token(), token)
		}
		frozen.send("check") // waits in the pipe
		frozen.signal(syscall.SIGCONT)
		equal(e, "the first look after the pause", frozen.answer().text, "ended")
		equal(e, "Unlock", frozen.ask("unlock").text, "not-held")
		e.refused(e.mutex(e.Client("c"), "orders", ttl(time.Second)))
		must(e, next.Context().Err())
		e.unlock(next)
	})
}

// The process is frozen after it has sent the request. The TTL may have passed when it reads the grant, which must
// then be ignored.
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
