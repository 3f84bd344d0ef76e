package clientgo_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// These tests run client-go's own elector with a Lock. The guarantees that client-go's own
// tests assert also hold with Redis. Tests in a bubble use client-go's default times.

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second

	// A candidate that does not hold the lease polls again after at most this time: retryPeriod with
	// client-go's jitter.
	lookPeriod = retryPeriod * 22 / 10
)

// A spy is a lock that counts the elector's calls.
type spy struct {
	resourcelock.Interface
	mu    sync.Mutex
	calls []string
}

func (s *spy) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *spy) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *spy) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s.note("get")
	return s.Interface.Get(ctx)
}

func (s *spy) Create(ctx context.Context, l resourcelock.LeaderElectionRecord) error {
	s.note("create")
	return s.Interface.Create(ctx, l)
}

func (s *spy) Update(ctx context.Context, l resourcelock.LeaderElectionRecord) error {
	s.note("update")
	return s.Interface.Update(ctx, l)
}

// There is no leader. The first candidate leads immediately, and the others are notified.
func TestElectorAcquires(t *testing.T) {
	onBoth(t, func(e *env) {
		counted := &spy{Interface: e.lock("a")}
		a := e.elect(counted, timing{}).elected()
		b := e.elect(e.lock("b"), timing{})
		e.Until("both know the leader", func() bool { return a.noted("leader a") && b.noted("leader a") })
		if b.leads() || b.le.IsLeader() || b.le.GetLeader() != "a" || !a.le.IsLeader() {
			e.Errorf("b takes %q for the leader", b.le.GetLeader())
		}
		if calls := counted.told(); !slices.Equal(calls[:2], []string{"get", "create"}) {
			e.Errorf("the elector asked %v", calls)
		}
		now, _ := e.get(e.lock("c"))
		if now.HolderIdentity != "a" || now.LeaseDurationSeconds != 15 || now.LeaderTransitions != 0 {
			e.Errorf("the record says %+v", now)
		}
	})
}

// A candidate waits for a lease for as long as the record says, counted from its last change. A lease
// that is renewed does not end. (This fails if Get's bytes do not include the version: then a renewal
// within the same second is not detected.)
func TestElectorWaitsForALease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		holder := e.lock("holder")
		must(e, holder.Create(e.Context(), ler("holder", 3)))
		a := e.elect(e.lock("a"), timing{})
		for range 20 { // the values do not change, but each write is a sign of life
			e.Pass(2 * time.Second)
			must(e, holder.Update(e.Context(), ler("holder", 3)))
			if a.leads() {
				e.Fatal("a leads together with the holder")
			}
		}
		died := time.Now()
		a.elected()
		if took := a.since().Sub(died); took < 3*time.Second || took > 3*time.Second+2*lookPeriod {
			e.Errorf("it led after %v", took)
		}
		if !a.noted("leader holder") {
			e.Error("it was not notified of the holder")
		}
		if now, _ := e.get(holder); now.LeaderTransitions != 1 || now.HolderIdentity != "a" {
			e.Errorf("the record says %+v", now)
		}
	})
}

// A leader continues to lead as long as it renews, with Updates alone: it knows the version that it has
// written.
func TestElectorRenews(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		counted := &spy{Interface: e.lock("a")}
		a := e.elect(counted, timing{}).elected()
		b := e.elect(e.lock("b"), timing{})
		acquired, _ := e.get(e.lock("c"))
		e.Pass(10 * time.Minute)
		if !a.leads() || b.leads() || a.noted("stopped") {
			e.Error("the lead did not last")
		}
		now, _ := e.get(e.lock("c"))
		if !now.AcquireTime.Equal(&acquired.AcquireTime) || now.LeaderTransitions != 0 {
			e.Errorf("the record says %+v, first it said %+v", now, acquired)
		}
		if since := time.Since(now.RenewTime.Time); since > lookPeriod {
			e.Errorf("renewed %v ago", since)
		}
		calls := counted.told()
		updates := calls[2:]
		if slices.Contains(updates, "get") || slices.Contains(updates, "create") || len(updates) < 200 {
			e.Errorf("%d calls, not just Updates", len(updates))
		}
	})
}
