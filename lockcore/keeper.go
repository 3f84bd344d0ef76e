package lockcore

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
)

// never is later than anything that is due.
const never = time.Duration(math.MaxInt64)

// A keeper renews all leases of a Client: one goroutine and one timer for any number
// of leases, and one stream of renewals.
type keeper struct {
	c     *Client
	kick  chan struct{}
	stop  chan struct{}
	wg    sync.WaitGroup
	links []*wire.Link

	mu       sync.Mutex
	due      leaseHeap // by renewAt
	underway []*renewal
	free     []*wire.Link // the one used last is at the end
	wakeAt   time.Duration
}

func newKeeper(c *Client, opt redis.Options) *keeper {
	k := &keeper{
		c: c, kick: make(chan struct{}, 1), stop: make(chan struct{}), wakeAt: never,
		links: wire.NewLinks(renewalLinks, opt),
	}
	k.free = slices.Clone(k.links)
	k.wg.Go(k.run)
	return k
}

// close ends the keeper; whoever calls it has ended the leases.
func (k *keeper) close() {
	close(k.stop)
	for _, l := range k.links {
		l.Close()
	}
	k.wg.Wait()
}

func (k *keeper) add(l *Lease) {
	if !l.a.terms.renew {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l.kept = true
	l.renewAt = l.acquired + l.a.terms.renewEvery
	heap.Push(&k.due, l)
	if l.renewAt < k.wakeAt {
		k.wakeAt = l.renewAt
		k.wake()
	}
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.kept = false
	if l.renewIdx >= 0 {
		heap.Remove(&k.due, l.renewIdx)
	}
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *keeper) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(k.step())
		select {
		case <-timer.C:
		case <-k.kick:
		case <-k.stop:
			return
		}
	}
}

// step starts the renewals that are due, and returns how long to sleep.
func (k *keeper) step() time.Duration {
	now := k.c.clock() // perhaps the user's, so not under the lock
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.launch(now)
	if k.wakeAt > now {
		// Never put off what the timer was set for: a lock that is taken and given
		// back all the time would set it anew each time.
		next = min(next, k.wakeAt)
	}
	k.wakeAt = next
	if next == never {
		return time.Hour
	}
	return max(next-now, 0)
}

// renewed counts the answer to a renewal sent at t0; false: try again.
func (l *Lease) renewed(t0 time.Duration, r wire.Answer) bool {
	counts := l.c.metrics
	if r.Err != nil {
		counts.missed.Inc()
		if wire.HasCode(r.Err, "READONLY") {
			l.c.sub.demoted()
		}
		l.c.log.V(1).Info("renewal failed", "name", l.a.keys.name, "token", l.token, "err", r.Err, "remaining", l.Remaining())
		return false
	}
	switch r.Value {
	case int64(1):
		counts.renewed.Inc()
		l.extend(t0)
	case int64(0):
		counts.lost.Inc()
		if l.end(ErrLeaseLost) {
			l.c.noteLoss(l, ErrLeaseLost)
		}
	default:
		counts.missed.Inc()
		req := l.a.renewal()
		l.c.log.Error(req.OddReply(r.Value), "renewal failed", "name", l.a.keys.name, "token", l.token)
		return false
	}
	return true
}

// leaseHeap is a heap of leases by their next renewal.
type leaseHeap struct{ leases []*Lease }

func (h *leaseHeap) Len() int { return len(h.leases) }

func (h *leaseHeap) Less(i, j int) bool { return h.leases[i].renewAt < h.leases[j].renewAt }

func (h *leaseHeap) Swap(i, j int) {
	h.leases[i], h.leases[j] = h.leases[j], h.leases[i]
	h.leases[i].renewIdx, h.leases[j].renewIdx = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.renewIdx = len(h.leases)
	h.leases = append(h.leases, l)
}

func (h *leaseHeap) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last] = nil
	h.leases = h.leases[:last]
	l.renewIdx = -1
	return l
}
