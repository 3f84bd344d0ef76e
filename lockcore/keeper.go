package lockcore

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// never is later than anything that is due.
const never = time.Duration(math.MaxInt64)

// A keeper renews all leases of a Client and ends those whose time is over: one
// goroutine and one timer for any number of leases, and one stream of renewals. A
// renewal that hangs delays no expiry.
type keeper struct {
	c     *Client
	kick  chan struct{}
	stop  chan struct{}
	wg    sync.WaitGroup
	links []*link

	mu       sync.Mutex
	due      leaseHeap // by renewAt
	underway []*renewal
	free     []*link   // the one used last is at the end
	expiry   leaseHeap // by expiresAt, which may lag behind validUntil
	wakeAt   time.Duration
}

func newKeeper(c *Client, opt redis.Options) *keeper {
	k := &keeper{
		c: c, kick: make(chan struct{}, 1), stop: make(chan struct{}), wakeAt: never,
		links: newLinks(renewalLinks, opt), expiry: leaseHeap{byExpiry: true},
	}
	k.free = slices.Clone(k.links)
	k.wg.Go(k.run)
	return k
}

// close ends the keeper; whoever calls it has ended the leases.
func (k *keeper) close() {
	close(k.stop)
	for _, l := range k.links {
		l.close()
	}
	k.wg.Wait()
}

func (k *keeper) add(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.kept = true
	l.expiresAt = time.Duration(l.validUntil.Load())
	heap.Push(&k.expiry, l)
	earliest := l.expiresAt
	if l.a.terms.renew {
		l.renewAt = l.acquired + l.a.terms.renewEvery
		heap.Push(&k.due, l)
		earliest = min(earliest, l.renewAt)
	}
	if earliest < k.wakeAt {
		k.wakeAt = earliest
		k.wake()
	}
}

func (k *keeper) remove(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.kept = false
	if l.expirIdx >= 0 {
		heap.Remove(&k.expiry, l.expirIdx)
	}
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
		expired, sleep := k.step()
		for _, l := range expired {
			if l.checkClock() == nil {
				k.expectEnd(l) // a renewal was counted just now
			}
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-k.kick:
		case <-k.stop:
			return
		}
	}
}

// expectEnd puts a lease that goes on after all back to those that may end.
func (k *keeper) expectEnd(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.kept && l.expirIdx < 0 {
		l.expiresAt = time.Duration(l.validUntil.Load())
		heap.Push(&k.expiry, l)
		k.wakeAt = min(k.wakeAt, l.expiresAt)
		k.wake()
	}
}

// step starts the renewals that are due, and returns the leases whose time is
// over and how long to sleep.
func (k *keeper) step() (expired []*Lease, sleep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.c.clock()
	next := never
	for len(k.expiry.leases) > 0 {
		l := k.expiry.leases[0]
		if l.expiresAt > now {
			next = l.expiresAt
			break
		}
		if until := time.Duration(l.validUntil.Load()); until > now {
			l.expiresAt = until // renewed since
			heap.Fix(&k.expiry, 0)
			continue
		}
		heap.Pop(&k.expiry)
		expired = append(expired, l)
	}
	next = min(next, k.launch(now))
	if k.wakeAt > now {
		// Never put off what the timer was set for: a lock that is taken and given
		// back all the time would set it anew each time.
		next = min(next, k.wakeAt)
	}
	k.wakeAt = next
	if next == never {
		return expired, time.Hour
	}
	return expired, max(next-now, 0)
}

// renewed counts the answer to a renewal sent at t0; false: try again.
func (l *Lease) renewed(t0 time.Duration, r reply) bool {
	outcomes := l.c.metrics.renewals
	if r.err != nil {
		outcomes.WithLabelValues("failed").Inc()
		l.c.log.V(1).Info("renewal failed; trying again", "name", l.a.keys.name, "error", r.err.Error(), "valid", l.Remaining())
		return false
	}
	switch r.value {
	case int64(1):
		outcomes.WithLabelValues("renewed").Inc()
		l.extend(t0)
	case int64(0):
		outcomes.WithLabelValues("lost").Inc()
		if l.end(ErrLeaseLost) {
			l.c.noteLoss(l, ErrLeaseLost)
		}
	default:
		outcomes.WithLabelValues("failed").Inc()
		s, _ := l.a.renewal()
		l.c.log.Error(s.oddReply(r.value), "renewal failed; trying again", "name", l.a.keys.name)
		return false
	}
	return true
}

// leaseHeap is a heap of leases by their next renewal or by their expiry.
type leaseHeap struct {
	leases   []*Lease
	byExpiry bool
}

func (h *leaseHeap) Len() int { return len(h.leases) }

func (h *leaseHeap) Less(i, j int) bool {
	if h.byExpiry {
		return h.leases[i].expiresAt < h.leases[j].expiresAt
	}
	return h.leases[i].renewAt < h.leases[j].renewAt
}

func (h *leaseHeap) Swap(i, j int) {
	h.leases[i], h.leases[j] = h.leases[j], h.leases[i]
	h.place(i)
	h.place(j)
}

func (h *leaseHeap) place(i int) {
	if h.byExpiry {
		h.leases[i].expirIdx = i
	} else {
		h.leases[i].renewIdx = i
	}
}

func (h *leaseHeap) Push(x any) {
	h.leases = append(h.leases, x.(*Lease))
	h.place(len(h.leases) - 1)
}

func (h *leaseHeap) Pop() any {
	last := len(h.leases) - 1
	l := h.leases[last]
	h.leases[last] = nil
	h.leases = h.leases[:last]
	if h.byExpiry {
		l.expirIdx = -1
	} else {
		l.renewIdx = -1
	}
	return l
}
