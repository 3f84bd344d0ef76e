package lockcore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Processes are frozen, and their waiters are queued in any order before one that is alive. Together they delay it
// by one unconfirmed grant, and the time in which called processes must answer. Each grant is checked when it ends:
// by the process that has released the lock; if it closes its Client, by the first waiter of each process; if it
// dies after the release, by the new head and a waiter of yet another process; if the holder died, by the waiters
// that look when the lock expires. A process that continues joins again.
func TestFault06_54_68_FrozenWaiters(t *testing.T) {
	many := strings.Repeat
	for _, c := range []struct {
		name   string
		queue  string // a letter for each waiter: L of the process that is alive, h of the holder's, others of those that freeze
		frozen int    // how many of these are before L
		ways   string // r: released; c: closed while it holds; u: closed after Unlock; k: dead after Unlock; d: dead
	}{
		{"nobody", "L", 0, "d"},
		{"waiters of the holder's process", many("h", 31) + "L", 1, "d"},
		{"one", "AL", 1, "rcukd"},
		{"20", many("A", 20) + "L", 1, "r"},
		{"20, and 40 behind", many("A", 20) + "L" + many("A", 40), 1, "r"},
		{"31 of one", many("A", 31) + "LA", 1, "cukd"},
		{"100 of one", many("A", 100) + "L", 1, "rcuk"},
		{"100 of one, and one behind", many("A", 100) + "LA", 1, "cu"},
		{"two", "ABL", 2, "r"},
		{"two, in turn", "ABABABABABL", 2, "r"},
		{"two, one after the other", "AAAAABBBBBL", 2, "r"},
		{"two, one behind", "ALBAB", 1, "r"},
		{"three", "ABCL", 3, "r"},
		{"three, in turn", "ABCCBAABCLABC", 3, "r"},
		{"four", "ABCDDCBALABCD", 4, "r"},
		{"five", "ABCDEL", 5, "cukd"},
		{"five, and more behind", "ABCDELAB", 5, "cud"},
		{"twenty", "ABCDEFGHIJKMNOPQRSTUL", 20, "r"},
		{"twenty, and more behind", "ABCDEFGHIJKMNOPQRSTULA", 20, "cud"},
		{"thirty-three", "ABCDEFGHIJKMNOPQRSTUVWXYZabcdefgiL", 33, "r"},
		{"many of two, in turn", many("AB", 30) + "L", 2, "r"},
		{"many of three", many("A", 40) + many("B", 40) + "CL" + many("C", 40), 3, "r"},
	} {
		for _, way := range c.ways {
			t.Run(c.name+"/"+string(way), func(t *testing.T) {
				inBubbleAllKinds(t, func(e *env) {
					cfg := ttl(3 * time.Second)
					releases, end := e.Linked("releases")
					holder := e.try(e.mutex(releases, "orders", cfg))
					clients := map[rune]*lockcore.Client{'L': e.Client("live"), 'h': releases}
					var networks []*lockcoretest.Faults
					var next *pending
					var waiting []*pending
					for _, process := range c.queue {
						if clients[process] == nil {
							client, network := e.Linked(string(process))
							clients[process], networks = client, append(networks, network)
						}
						p := e.queued(e.mutex(clients[process], "orders", cfg))
						if process == 'L' {
							next = p
						} else {
							waiting = append(waiting, p)
						}
					}
					var cuts []*lockcoretest.Rule
					for _, network := range networks {
						cuts = append(cuts, network.Partition()) // the connections stay open
					}
					if strings.ContainsRune("ruk", way) {
						e.unlock(holder)
					}
					ended := e.Clock()
					switch way {
					case 'c', 'u':
						must(e, releases.Close(e.Context()))
						mustIs(e, holder.Context().Err(), context.Canceled)
					case 'k', 'd':
						end.Partition()
						end.Cut()
					}
					if way == 'd' {
						ended += cfg.TTL
					}
					lease, limit := next.granted(), 1300*time.Millisecond
					if c.frozen < 2 {
						limit = []time.Duration{500 * time.Millisecond, 1050 * time.Millisecond}[c.frozen]
					}
					e.within(ended, limit)
					if way != 'r' {
						return
					}
					for _, cut := range cuts[:c.frozen] {
						lockcoretest.MustFire(e, cut)
					}
					for _, network := range networks {
						network.Heal()
					}
					e.unlock(lease)
					var all sync.WaitGroup
					for _, p := range waiting {
						all.Go(func() {
							lease, err := p.wait()
							if err == nil {
								err = lease.Unlock(e.Context())
							}
							must(e, err)
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// One script passes 1000 waiters that have lapsed, or that are not of this library. If there are more, the release is
// repeated at once, until the first waiter that is alive is served. A try does not take a lock that is free meanwhile.
func TestFault68_MoreDeadWaitersThanOneScriptPasses(t *testing.T) {
	onAllKinds(t, func(e *env) {
		e.warmAll()
		cfg := ttl(time.Minute)
		for _, released := range []bool{true, false} {
			holder := e.try(e.mutex(e.Client("holder"), "orders", cfg))
			next := e.queued(e.mutex(e.Client("live"), "orders", cfg))
			var dead []redis.Z
			for i := range 1500 {
				dead = append(dead, redis.Z{Score: float64(i), Member: map[bool]string{true: e.deadAttempt(i), false: fmt.Sprint("dead-", i)}[released]})
			}
			must(e, e.Raw.ZAdd(e.Context(), e.key("orders", "queue"), dead...).Err())
			began := e.Clock()
			if released {
				e.unlock(holder)
			} else {
				must(e, e.Raw.Del(e.Context(), e.key("orders", "lock")).Err())
				equal(e, "the holder", e.refused(e.mutex(e.Client("tries"), "orders", cfg)).Holder, "live")
			}
			lease := next.granted()
			e.within(began, 100*time.Millisecond)
			e.unlock(lease)
		}
	})
}

// Notes on processes that died before they confirmed a grant do not accumulate.
func TestNotesOnDeadProcessesAreBounded(t *testing.T) {
	onOneServer(t, func(e *env) {
		keys := e.scriptKeys("orders")
		e.run("mutex_acquire", keys, "nl1:HOLDER.1/a", 60000, "try", 3600000)
		for i := range 100 {
			e.run("mutex_acquire", keys, fmt.Sprintf("nl1:DEAD%d.1/b", i), 60000, "join", 3600000)
		}
		e.run("mutex_leave", keys, "nl1:HOLDER.1/a", 0, 3600000)
		for range 99 { // each is granted the lock, and dies
			must(e, e.Raw.Del(e.Context(), keys[0]).Err())
			e.run("mutex_acquire", keys, "nl1:LOOKS.1/c", 60000, "try", 3600000)
		}
		notes := e.Raw.HGet(e.Context(), keys[3], "!").Val()
		// Time passes at a real server, and processes are called that are noted earlier then.
		if n := strings.Count(notes, "\n"); n != 48 || e.Bubble != nil && !strings.HasPrefix(notes, "DEAD52 ") {
			e.Errorf("%d notes are kept: %q", n, notes)
		}
	})
}

// A live process hears of a grant, or of a call, only after it was taken for dead, and its waiters have lost their
// places. The first one that notices makes the others look, also if the grant or the call names one that has left. All
// of them are served soon, although each one looks only once per TTL.
// Caught mutants: such a waiter joins again alone; a message about an attempt that has left makes nobody look.
func TestFault68_PassedProcessJoinsAgain(t *testing.T) {
	for _, message := range []string{"grant", "call"} {
		for _, left := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, its waiter has left: %v", message, left), func(t *testing.T) {
				inBubbleAllKinds(t, func(e *env) {
					cfg := ttl(10 * time.Minute)
					holder := e.try(e.mutex(e.Client("holder"), "orders", cfg))
					slow, network := e.Linked("slow")
					var frozen, called *pending
					if message == "call" { // after the grant to a frozen process has lapsed
						process, f := e.Linked("frozen")
						frozen = e.queued(e.mutex(process, "orders", cfg))
						called = e.queued(e.mutex(e.Client("called"), "orders", cfg))
						f.Partition()
					}
					var waiting []*pending
					for range 20 {
						waiting = append(waiting, e.queued(e.mutex(slow, "orders", cfg)))
					}
					next := e.queued(e.mutex(e.Client("next"), "orders", cfg))
					late := network.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayMessage, Delay: 3 * time.Second, Count: 1})
					e.unlock(holder)
					if called != nil {
						lease := called.granted()
						e.Pass(300 * time.Millisecond)
						e.unlock(lease)
						_ = frozen.quits()
					}
					lease := next.granted()
					if left {
						_ = waiting[0].quits()
						waiting = waiting[1:]
					}
					lockcoretest.MustFire(e, late)
					e.Pass(4 * time.Second)
					equal(e, "waiters that have joined again", e.queueLength("orders"), int64(len(waiting)))
					released := e.Clock()
					e.unlock(lease)
					for _, p := range waiting {
						e.unlock(p.granted())
					}
					e.within(released, time.Second)
				})
			})
		}
	}
}
