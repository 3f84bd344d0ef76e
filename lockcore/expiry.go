package lockcore

import (
	"container/heap"
	"sync"
	"time"
)

// An expiry ends the leases of a Client whose time is over: one goroutine and one
// timer for any number of leases, apart from those that renew them. It closes the
// contexts of all leases that are due before it does anything else for one of them, and
// runs nothing of the user's.
type expiry struct {
	clock *clock
	after func([]*Lease) // does the rest for leases that have ended, and may take its time
	kick  chan struct{}
	stop  chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	leases endHeap // by expiresAt, which may lag behind validUntil
	wakeAt time.Duration
}

func newExpiry(clock *clock, after func([]*Lease)) *expiry {
	x := &expiry{clock: clock, after: after, kick: make(chan struct{}, 1), stop: make(chan struct{}), wakeAt: never}
	x.wg.Go(x.run)
	return x
}

// close ends it; whoever calls it has ended the leases.
func (x *expiry) close() {
	close(x.stop)
	x.wg.Wait()
}

// add has a lease end when its time is over. It may be called again.
func (x *expiry) add(l *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.expirIdx >= 0 || l.ending.cause() != nil {
		return
	}
	l.expiresAt = time.Duration(l.validUntil.Load())
	heap.Push(&x.leases, l)
	if l.expiresAt < x.wakeAt {
		x.wakeAt = l.expiresAt
		x.wake()
	}
}

func (x *expiry) remove(l *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.expirIdx >= 0 {
		heap.Remove(&x.leases, l.expirIdx)
	}
}

func (x *expiry) wake() {
	select {
	case x.kick <- struct{}{}:
	default:
	}
}

func (x *expiry) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(x.step())
		select {
		case <-timer.C:
		case <-x.kick:
		case <-x.stop:
			return
		}
	}
}

// endsAtOnce is how many leases are taken from the heap at a time: those who acquire
// and release meanwhile wait for the heap no longer than that takes.
const endsAtOnce = 256

// step ends the leases whose time is over, and returns how long to sleep.
func (x *expiry) step() time.Duration {
	var over []*Lease
	var sleep time.Duration
	for batch := make([]*Lease, 0, endsAtOnce); ; {
		batch, sleep = x.due(batch[:0])
		for _, l := range batch {
			if l.expire() {
				over = append(over, l)
			} else {
				x.add(l) // a renewal was counted just now
			}
		}
		if len(batch) < endsAtOnce {
			break
		}
	}
	if len(over) > 0 {
		for _, l := range over {
			l.endBound()
		}
		x.wg.Go(func() { x.after(over) })
	}
	return sleep
}

// due takes leases whose time is over from the heap, and returns how long to sleep if
// there are no more.
func (x *expiry) due(batch []*Lease) ([]*Lease, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.ticks()
	x.wakeAt = never
	for len(x.leases) > 0 && len(batch) < endsAtOnce {
		l := x.leases[0]
		if l.expiresAt > now {
			x.wakeAt = l.expiresAt
			return batch, l.expiresAt - now
		}
		if until := time.Duration(l.validUntil.Load()); until > now {
			l.expiresAt = until // renewed since
			heap.Fix(&x.leases, 0)
			continue
		}
		heap.Pop(&x.leases)
		batch = append(batch, l)
	}
	return batch, time.Hour
}

// endHeap is a heap of leases by their expiry.
type endHeap []*Lease

func (h endHeap) Len() int { return len(h) }

func (h endHeap) Less(i, j int) bool { return h[i].expiresAt < h[j].expiresAt }

func (h endHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].expirIdx, h[j].expirIdx = i, j
}

func (h *endHeap) Push(lease any) {
	l := lease.(*Lease)
	l.expirIdx = len(*h)
	*h = append(*h, l)
}

func (h *endHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.expirIdx = -1
	return l
}
