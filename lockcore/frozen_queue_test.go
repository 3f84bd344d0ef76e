package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
						waiting = append(waiting, e.queued(e.mutex(frozen, "orders", cfg)))
					}
				}
				join(c.before)
				next := e.queued(e.mutex(live, "orders", cfg))
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

// frozenDelay is how long n frozen processes delay the queue: one grant, and after it the time
// in which the others must answer a call.
func frozenDelay(n int) time.Duration {
	if n == 1 {
		return 1050 * time.Millisecond
	}
	return 1300 * time.Millisecond
}

// Several processes are frozen, with their waiters in any order: together they cost one grant,
// and the time in which called processes must answer. The process that releases the lock
// checks each grant when it ends, whether or not it has waiters.
//
// Caught mutants: no process checks a grant; the releasing process checks only its own grant;
// each frozen process costs one grant.
func TestFault68_FrozenWaitersOfManyProcesses(t *testing.T) {
	for _, c := range []struct {
		name   string
		queue  string // A to D: waiters of the processes that freeze; L: of the one that is alive
		frozen int
	}{
		{"two", "ABL", 2},
		{"two, in turn", "ABABABABABL", 2},
		{"two, one after the other", "AAAAABBBBBL", 2},
		{"two, one behind", "ALBAB", 1},
		{"three", "ABCL", 3},
		{"three, in turn", "ABCCBAABCLABC", 3},
		{"four", "ABCDDCBALABCD", 4},
		{"twenty", "ABCDEFGHIJKMNOPQRSTUL", 20},
		{"many of two, in turn", strings.Repeat("AB", 30) + "L", 2},
		{"many of three", strings.Repeat("A", 40) + strings.Repeat("B", 40) + "CL" + strings.Repeat("C", 40), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				cfg := ttl(3 * time.Second)
				holder := e.try(e.mutex(e.Client("holder"), "orders", ttl(time.Minute)))
				clients := map[rune]*lockcore.Client{'L': e.Client("live")}
				var freeze []*lockcoretest.Faults
				for _, process := range "ABCDEFGHIJKMNOPQRSTU" {
					if !strings.ContainsRune(c.queue+"ABCD", process) {
						continue
					}
					client, faults := e.Linked(string(process))
					clients[process] = client
					if strings.ContainsRune(c.queue, process) {
						freeze = append(freeze, faults)
					}
				}
				var next *pending
				for _, process := range c.queue {
					p := e.queued(e.mutex(clients[process], "orders", cfg))
					if process == 'L' {
						next = p
					}
				}
				var cuts []*lockcoretest.Rule
				for _, faults := range freeze {
					cuts = append(cuts, faults.Partition()) // the connections stay open
				}
				e.unlock(holder)
				released := e.Clock()
				lease := next.granted()
				if took := e.Clock() - released; took > frozenDelay(c.frozen) {
					e.Errorf("the one that is alive was served after %v, want %v", took, frozenDelay(c.frozen))
				}
				e.unlock(lease)
				for _, cut := range cuts[:c.frozen] {
					lockcoretest.MustFire(e, cut)
				}
			})
		})
	}
}

// The process that releases the lock ends at once, or the holder's process dies. Others check
// the grant: if the Client was closed, the first waiter of each process; if the process died
// after the release, the new head and a waiter of yet another process; and if the holder died,
// the waiters that look when the lock expires.
//
// Caught mutants: a closed Client drops its checks; only the new head is notified of the end
// of a grant; only the first three processes look when the lock expires.
func TestFault68_ReleaseByAProcessThatEnds(t *testing.T) {
	for _, c := range []struct {
		name, queue string
		frozen      int
		ways        string // c: closed while it holds; u: closed after Unlock; k: dead after Unlock; d: dead
	}{
		{"one", "AL", 1, "cukd"},
		{"many of one", strings.Repeat("A", 31) + "LA", 1, "cukd"},
		{"very many of one, and the last is alive", strings.Repeat("A", 100) + "L", 1, "cuk"},
		{"many of one, and more behind", strings.Repeat("A", 100) + "LA", 1, "cu"},
		{"five", "ABCDEL", 5, "cukd"},
		{"five, and more behind", "ABCDELAB", 5, "cud"},
		{"twenty", "ABCDEFGHIJKMNOPQRSTULA", 20, "cud"},
	} {
		for _, way := range c.ways {
			t.Run(c.name+"/"+string(way), func(t *testing.T) {
				inBubbleAllKinds(t, func(e *env) {
					const short = 3 * time.Second
					releases, end := e.Linked("releases")
					holder := e.try(e.mutex(releases, "orders", ttl(short)))
					clients := map[rune]*lockcore.Client{'L': e.Client("live")}
					var freeze []*lockcoretest.Faults
					var next *pending
					for _, process := range c.queue {
						if clients[process] == nil {
							client, faults := e.Linked(string(process))
							clients[process] = client
							freeze = append(freeze, faults)
						}
						p := e.queued(e.mutex(clients[process], "orders", ttl(short)))
						if process == 'L' {
							next = p
						}
					}
					for _, faults := range freeze {
						faults.Partition()
					}
					if way == 'u' || way == 'k' {
						e.unlock(holder)
					}
					ended := e.Clock()
					switch way {
					case 'c', 'u':
						must(e, releases.Close(e.Context()))
						mustIs(e, holder.Context().Err(), context.Canceled)
					default:
						end.Partition()
						end.Cut()
					}
					if way == 'd' {
						ended += short
					}
					next.granted()
					if took := e.Clock() - ended; took > frozenDelay(c.frozen) {
						e.Errorf("the one that is alive was served after %v, want %v", took, frozenDelay(c.frozen))
					}
				})
			})
		}
	}
}

// One script passes 1000 waiters that have lapsed. If there are more, the release is repeated
// at once, until the first waiter that is alive is served.
//
// Caught mutant: the lock stays free until the waiter looks.
func TestFault68_MoreDeadWaitersThanOneScriptPasses(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		e.warmAll()
		holder := e.try(e.mutex(e.Client("holder"), "orders", ttl(time.Minute)))
		form := map[string]string{"mutex": "nl1:DEAD.%d.u/id", "write": "ns1:DEAD.%d.u.w/o id"}[e.kind]
		var dead []redis.Z
		for i := range 1200 {
			dead = append(dead, redis.Z{Score: float64(i), Member: fmt.Sprintf(form, i)})
		}
		next := e.queued(e.mutex(e.Client("live"), "orders", ttl(time.Minute)))
		must(e, e.Raw.ZAdd(e.Context(), e.key("orders", "queue"), dead...).Err())
		e.unlock(holder)
		released := e.Clock()
		next.granted()
		if took := e.Clock() - released; took > 100*time.Millisecond {
			e.Errorf("the first one that is alive was served after %v", took)
		}
	})
}

// A Client checks only its last grant of a name, so that a hand-over that is followed by
// another one costs no additional command. A check that finds the grant confirmed is the last one.
//
// Caught mutants: each grant is checked; a check is repeated.
func TestChecksOfGrantsAreFew(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		cfg := ttl(time.Minute)
		a, f := e.Linked("a")
		b := e.Client("b")
		leave, leaves := e.script("mutex_leave"), atomic.Int64{}
		_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: func(cmd []string) bool {
			if leave(cmd) {
				leaves.Add(1)
			}
			return false
		}})
		must(e, err)
		e.warmAll()
		const rounds = 10
		lease := e.try(e.mutex(a, "orders", cfg))
		for range rounds {
			next := e.queued(e.mutex(b, "orders", cfg))
			e.unlock(lease)
			held := next.granted()
			next = e.queued(e.mutex(a, "orders", cfg))
			e.unlock(held)
			lease = next.granted()
			e.Pass(100 * time.Millisecond)
		}
		last := e.queued(e.mutex(b, "orders", cfg))
		e.unlock(lease)
		last.granted()
		e.Pass(10 * time.Second)
		if n := leaves.Load(); n != rounds+1+1 {
			e.Errorf("%d releases sent %d requests, want one check more", rounds+1, n)
		}
	})
}

// Notes on processes that died before they confirmed a grant do not accumulate.
//
// Caught mutant: all such notes stay.
func TestNotesOnDeadProcessesAreBounded(t *testing.T) {
	onOneServer(t, func(e *env) {
		keys := e.scriptKeys("orders")
		e.run("mutex_acquire", keys, "nl1:HOLDER.1.u/a", 60000, "try", 3600000)
		for i := range 100 {
			e.run("mutex_acquire", keys, fmt.Sprintf("nl1:DEAD%d.1.u/b", i), 60000, "join", 3600000)
		}
		e.run("mutex_leave", keys, "nl1:HOLDER.1.u/a", 0, 3600000)
		for range 99 { // each is granted the lock, and dies
			must(e, e.Raw.Del(e.Context(), keys[0]).Err())
			e.run("mutex_acquire", keys, "nl1:LOOKS.1.u/c", 60000, "try", 3600000)
		}
		notes := e.Raw.HGet(e.Context(), keys[3], "!").Val()
		// Time passes at a real server, and processes are called that are noted earlier then.
		if n := strings.Count(notes, "\n"); n != 48 || e.Bubble != nil && !strings.HasPrefix(notes, "DEAD52 ") {
			e.Errorf("%d notes are kept: %q", n, notes)
		}
	})
}
