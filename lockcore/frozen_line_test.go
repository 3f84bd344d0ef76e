package lockcore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A process is frozen, and many of its waiters are queued before one that is alive. They
// delay the queue by one unconfirmed grant, not by one each: the process is passed over
// with all its waiters. When it continues, they join again.
//
// Caught mutants: each waiter of a frozen process is granted the lock; only its first one
// is notified when the grant ends.
func TestFault68_FrozenWaitersOfOneProcess(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after int // waiters of the frozen process before and after the one that is alive
	}{{"1", 1, 0}, {"20", 20, 0}, {"20, and 40 behind", 20, 40}, {"100", 100, 0}} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				cfg := ttl(3 * time.Second)
				frozen, f := e.Linked("frozen")
				live := e.Client("live")
				holder := e.try(e.mutex(live, "orders", ttl(time.Minute)))
				var waiting []*pending
				join := func(n int) {
					for range n {
						waiting = append(waiting, e.inLine(e.mutex(frozen, "orders", cfg)))
					}
				}
				join(c.before)
				next := e.inLine(e.mutex(live, "orders", cfg))
				join(c.after)
				stop := f.Partition() // its connections stay open
				e.unlock(holder)
				released := e.Clock()
				lease := next.granted()
				if took := e.Clock() - released; took > 1200*time.Millisecond {
					e.Errorf("the first one that lives was served after %v, want one grant's length", took)
				}
				stop.Lift() // the process continues
				e.unlock(lease)
				var all sync.WaitGroup
				for _, p := range waiting {
					all.Go(func() {
						lease, err := p.wait()
						if err == nil {
							err = lease.Unlock(e.Context())
						}
						if err != nil {
							e.Errorf("a waiter of the process that was frozen: %v", err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// Several processes are frozen, with their waiters mixed: each costs one grant.
func TestFault68_FrozenWaitersOfTwoProcesses(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(3 * time.Second)
		live := e.Client("live")
		holder := e.try(e.mutex(live, "orders", ttl(time.Minute)))
		one, f1 := e.Linked("one")
		two, f2 := e.Linked("two")
		for i := range 10 {
			e.inLine(e.mutex([]*lockcore.Client{one, two}[i%2], "orders", cfg))
		}
		next := e.inLine(e.mutex(live, "orders", cfg))
		cut1, cut2 := f1.Partition(), f2.Partition()
		e.unlock(holder)
		released := e.Clock()
		lease := next.granted()
		// The waiter that is notified of the first grant's end may be frozen, too. Then the
		// next look finds the free lock.
		if took := e.Clock() - released; took > 2*time.Second+3*time.Second*12/10 {
			e.Errorf("the first one that lives was served after %v", took)
		}
		e.unlock(lease)
		lockcoretest.MustFire(e, cut1)
		lockcoretest.MustFire(e, cut2)
	})
}

// Notes on processes that died while they were to confirm a grant do not pile up.
//
// Caught mutant: all such notes stay.
func TestNotesOnDeadProcessesAreBounded(t *testing.T) {
	onBoth(t, func(e *env) {
		keys := e.scriptKeys("orders")
		e.run("mutex_acquire", keys, "nl1:HOLDER.1.u/a", 60000, "try", 3600000)
		for i := range 50 {
			e.run("mutex_acquire", keys, fmt.Sprintf("nl1:DEAD%d.1.u/b", i), 60000, "join", 3600000)
		}
		e.run("mutex_leave", keys, "nl1:HOLDER.1.u/a", 0, 3600000)
		for range 49 { // each is granted the lock, and dies
			must(e, e.Raw.Del(e.Context(), keys[0]).Err())
			e.run("mutex_acquire", keys, "nl1:LOOKS.1.u/c", 60000, "try", 3600000)
		}
		notes := e.Raw.HGet(e.Context(), keys[3], "!").Val()
		if n := strings.Count(notes, "\n"); n != 16 || !strings.HasPrefix(notes, "DEAD34 ") {
			e.Errorf("%d notes are kept: %q", n, notes)
		}
	})
}
