package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/lockcore"
)

// In a bubble no configuration is needed: leases use its clock, and a holder that is cut
// off stops in time.
func TestFault63_NoClockInABubble(t *testing.T) {
	inBubble(t, func(e *env) {
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{})
		began := time.Now()
		lease := e.try(e.mutex(c, "orders", ttl(10*time.Second)))
		e.Pass(time.Hour)
		if lease.Context().Err() != nil {
			e.Fatalf("the lease was not renewed: %v", context.Cause(lease.Context()))
		}
		faults.Partition()
		cut := time.Now()
		mustIs(e, e.ended(lease), lockcore.ErrLeaseExpired)
		if took := time.Since(cut); took < 6*time.Second || took > 10*time.Second-102*time.Millisecond {
			e.Errorf("it ended %s after it was cut off", took)
		}
		faults.Heal()
		if time.Since(began) < time.Hour {
			e.Error("the clock is not the bubble's")
		}
	})
}

type valueKey struct{}

// Many leases end at one instant. The contexts of all of them, and those bound to them, are
// done before any code of the user's runs because of an end: functions of context.AfterFunc, and
// the logger. Such code runs afterwards.
//
// Caught mutants: a lease is cleaned up, or its Holder is notified, before the next one ends;
// the contexts that are bound to a lease end during its clean-up.
func TestFault67_ThousandsEndAtOneInstant(t *testing.T) {
	inBubble(t, func(e *env) {
		const n = 1000
		var leases []*lockcore.Lease
		var mu sync.RWMutex
		var ends []<-chan struct{} // of the leases, and of the contexts bound to them
		var early, called, logged atomic.Int64
		var children []context.Context
		look := func(calls *atomic.Int64) {
			calls.Add(1)
			mu.RLock()
			defer mu.RUnlock()
			for _, end := range ends {
				select {
				case <-end:
				default:
					early.Add(1)
				}
			}
		}
		c := e.ClientWith(e.Direct(), lockcore.Config{Logger: funcr.New(func(string, string) { look(&logged) }, funcr.Options{})})
		until := time.Now().Add(988 * time.Millisecond)
		for i := range n {
			lease := e.try(e.mutex(c, fmt.Sprint("lock-", i), lockcore.LeaseConfig{TTL: time.Second, NoRenewal: true}))
			leases = append(leases, lease)
		}
		for _, lease := range leases {
			context.AfterFunc(lease.Context(), func() { look(&called) })
			child, cancel := context.WithCancel(lease.Context())
			defer cancel()
			bound, stop := lease.Bind(e.Context())
			defer stop()
			mu.Lock()
			ends = append(ends, lease.Context().Done(), bound.Done())
			mu.Unlock()
			grandchild, cancel := context.WithTimeout(context.WithValue(bound, valueKey{}, 1), time.Hour)
			defer cancel()
			children = append(children, child, bound, grandchild)
		}
		for _, lease := range leases {
			<-lease.Context().Done()
			if late := time.Since(until); late > 0 || late < -20*time.Millisecond {
				e.Fatalf("a context was done %s late; with so many leases, up to 20ms early is right", late)
			}
		}
		e.WaitIdle()
		if early.Load() > 0 || called.Load() != n || logged.Load() != n {
			e.Errorf("%d functions and %d lines of the log; contexts that were not done then: %d", called.Load(), logged.Load(), early.Load())
		}
		for _, child := range children {
			mustIs(e, child.Err(), context.Canceled)
			mustIs(e, context.Cause(child), lockcore.ErrLeaseExpired)
		}
		if late := time.Since(until); late > 0 || late < -20*time.Millisecond {
			e.Errorf("what hangs on them was done %s late", late)
		}
	})
}
