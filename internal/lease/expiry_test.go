//go:build !race

package lease_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
)

// 5,000 leases end at one instant. The last goroutine that waits for one of them notices the end
// within the margin of a TTL of 1 s, after which others may hold the lock, or on a busy machine within
// twice the time in which as many goroutines notice that one timer has closed their channels.
//
// The race detector delays each end, so the test does not run with it.
//
// Caught mutant: an end of 5 µs more for each lease.
func TestManyLeasesEndWithinTheMargin(t *testing.T) {
	const leases, rounds = 5000, 5
	last := func(end time.Time, done func(i int) <-chan struct{}) time.Duration {
		t.Helper()
		var late atomic.Int64
		late.Store(-int64(time.Hour))
		var all sync.WaitGroup
		for i := range leases {
			all.Go(func() {
				<-done(i)
				for by, was := int64(time.Since(end)), late.Load(); by > was && !late.CompareAndSwap(was, by); was = late.Load() {
					continue
				}
			})
		}
		if !time.Now().Before(end) {
			t.Fatal("the leases ended before all goroutines waited")
		}
		all.Wait()
		return time.Duration(late.Load())
	}
	control := func() time.Duration {
		channels := make([]chan struct{}, leases)
		for i := range channels {
			channels[i] = make(chan struct{})
		}
		const in = time.Second
		end := time.Now().Add(in)
		time.AfterFunc(in, func() {
			for _, c := range channels {
				close(c)
			}
		})
		return last(end, func(i int) <-chan struct{} { return channels[i] })
	}
	ends := func() time.Duration {
		clock := lease.NewClock(nil)
		k := lease.NewKeeper(lease.Config{Clock: clock, Renewer: &network{first: &server{begun: time.Now()}}, Expired: errExpired, MaxHeld: errMaxHeld})
		defer k.Close()
		const in = time.Second
		t0, end := clock.Now(), time.Now().Add(in)
		all := make([]*lease.Lease, leases)
		for i := range all {
			all[i] = begin(t, k, t0, &lease.Times{Valid: in}, make(holder, 1))
		}
		return last(end, func(i int) <-chan struct{} { return all[i].Context().Done() })
	}
	var log []string
	for range rounds { // the best one counts, since a busy machine may delay either
		late, plain := ends(), control()
		log = append(log, fmt.Sprintf("the last context was done %v after its time, the last channel closed after %v", late, plain))
		if late <= max(lease.Margin(time.Second), 2*plain) {
			t.Log(log)
			return
		}
	}
	t.Errorf("%q", log)
}
