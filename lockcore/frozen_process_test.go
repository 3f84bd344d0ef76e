package lockcore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// Five processes are frozen in the queue, ahead of a live one. Together they delay it by one
// unconfirmed grant and the time in which the others must answer, whether the lock is
// released by a process that goes on, that is killed, or that closes its Client, or whether
// its holder is killed. When they continue, they are served in their order.
//
// Caught mutants: each frozen process is granted the lock for a second; the releasing process
// alone checks the grant; Close drops that check; only the first three waiters look at the
// lock when it expires.
func TestFault68_FrozenProcesses(t *testing.T) {
	const frozen = 5
	for _, ends := range []string{"unlock", "unlock and die", "unlock and close", "close", "die"} {
		t.Run(ends, func(t *testing.T) {
			onServerAllKinds(t, func(e *env) {
				holder := e.startActor("holder")
				holder.ask("try orders 3000").number("locked")
				var queue []*actor
				for i := range frozen {
					a := e.startActor(fmt.Sprint("frozen-", i))
					a.Send("lock orders 3000")
					e.Until("it is queued", func() bool { return e.queueLength("orders") == int64(i+1) })
					queue = append(queue, a)
				}
				live := e.queued(e.mutex(e.Client("live"), "orders", ttl(3*time.Second)))
				for _, a := range queue {
					a.Signal(syscall.SIGSTOP)
				}
				delay := 3 * time.Second // of a killed holder: its TTL
				switch ends {
				case "die":
					holder.Signal(syscall.SIGKILL)
				case "close":
					delay = 0
					holder.ask("close")
				default:
					delay = 0
					holder.ask("unlock")
				}
				ended := e.Clock()
				switch ends {
				case "unlock and die":
					holder.Signal(syscall.SIGKILL)
				case "unlock and close":
					holder.ask("close")
				}
				lease := live.granted()
				took := e.Clock() - ended
				t.Logf("%s: served %v after the end of the lease", e.kind, (took - delay).Round(time.Millisecond))
				if took > delay+2*time.Second { // in virtual time below, exactly
					t.Errorf("served after %v", took)
				}
				for _, a := range queue {
					a.Signal(syscall.SIGCONT)
				}
				e.Until("they are queued again", func() bool { return e.queueLength("orders") == frozen })
				e.unlock(lease)
				for _, a := range queue {
					if token := a.answer().number("locked"); token <= lease.Token() {
						t.Errorf("token %d after %d", token, lease.Token())
					}
					a.ask("unlock")
				}
			})
		})
	}
}

// A process is frozen with 20 waiters ahead of a live one. They delay it as long as one frozen
// waiter does: by one unconfirmed grant in all. When the process continues, all are served.
//
// Caught mutant: each waiter of the frozen process is granted the lock.
func TestFault68_FrozenProcessWithManyWaiters(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		delay := func(waiters int) time.Duration {
			e.Helper()
			name, cfg := fmt.Sprint("orders-", waiters), ttl(10*time.Second)
			holder := e.lock(e.mutex(e.Client("holder"), name, cfg))
			frozen := e.startActor("frozen")
			frozen.Send(fmt.Sprint("waiters ", name, " ", waiters))
			if got := frozen.answer(); got.text != "waiting" {
				e.Fatalf("the process answered %q %q", got.text, got.arg)
			}
			e.Until("they are queued", func() bool { return e.queueLength(name) == int64(waiters) })
			live := e.queued(e.mutex(e.Client("live"), name, cfg))
			frozen.Signal(syscall.SIGSTOP)
			e.unlock(holder)
			released := e.Clock()
			lease := live.granted()
			took := e.Clock() - released
			frozen.Signal(syscall.SIGCONT)
			e.unlock(lease)
			e.Until("all were served", func() bool { return e.queueLength(name) == 0 && e.stored(name) == "" })
			return took
		}
		one, twenty := delay(1), delay(20)
		e.Logf("one frozen waiter: %v, twenty: %v", one.Round(time.Millisecond), twenty.Round(time.Millisecond))
		if twenty > 2*one {
			e.Errorf("twenty frozen waiters cost %v, one costs %v", twenty, one)
		}
	})
}
