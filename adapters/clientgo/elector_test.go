package clientgo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// These tests run client-go's own elector with a Lock. The guarantees that client-go's own
// tests assert also hold with Redis. Tests in a bubble use client-go's default times.

const (
	leaseDuration = 15 * time.Second
	retryPeriod   = 2 * time.Second

	// A candidate that does not hold the lease polls again after at most this time: retryPeriod with
	// client-go's jitter.
	lookPeriod = retryPeriod * 22 / 10
)

// A candidate runs client-go's own elector and records its callbacks.
type candidate struct {
	e      *env
	lock   resourcelock.Interface
	le     *leaderelection.LeaderElector
	cancel context.CancelFunc
	done   chan struct{} // closed after Run has returned

	mu      sync.Mutex
	events  []string
	started time.Time // start of the leadership
	leading context.Context
}

// timing has the times of an elector. The zero value has client-go's defaults of 15 s, 10 s, 2 s.
type timing struct {
	lease, deadline, retry time.Duration
}

func (e *env) elect(lock resourcelock.Interface, tm timing) *candidate {
	e.Helper()
	if tm.lease == 0 {
		tm.lease, tm.deadline, tm.retry = 15*time.Second, 10*time.Second, 2*time.Second
	}
	c := &candidate{e: e, lock: lock, done: make(chan struct{})}
	note := func(format string, args ...any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, fmt.Sprintf(format, args...))
	}
	var err error
	c.le, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: tm.lease, RenewDeadline: tm.deadline, RetryPeriod: tm.retry,
		ReleaseOnCancel: true, Name: "board",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				note("started")
				c.mu.Lock()
				defer c.mu.Unlock()
				c.started, c.leading = time.Now(), ctx
			},
			OnStoppedLeading: func() { note("stopped") },
			OnNewLeader:      func(identity string) { note("leader %s", identity) },
		},
	})
	must(e, err)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	c.cancel = cancel
	go func() {
		defer close(c.done)
		c.le.Run(ctx)
	}()
	e.Cleanup(c.stop)
	return c
}

// stop ends the elector and waits for it.
func (c *candidate) stop() {
	c.cancel()
	<-c.done
}

// leads reports whether OnStartedLeading was called and its context is not done.
func (c *candidate) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading != nil && c.leading.Err() == nil
}

func (c *candidate) since() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

func (c *candidate) noted(event string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.events, event)
}

// elected waits until the candidate leads.
func (c *candidate) elected() *candidate {
	c.e.Helper()
	c.e.Until(c.lock.Identity()+" leads", c.leads)
	return c
}

// The first candidate leads at once, and the others are notified. It renews with Updates alone: it knows the version that
// it has written. When it is stopped, it releases the record, and the next candidate leads at its next poll.
func TestElector(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		lock, f := e.linked("a")
		reads := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: testenv.Command("get"), Delay: 1})
		written := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: writes, Delay: 1})
		a := e.elect(lock, timing{}).elected()
		b := e.elect(e.lock("b"), timing{})
		e.Until("both know the leader", func() bool { return a.noted("leader a") && b.noted("leader a") })
		acquired, _ := e.get(e.lock("c"))
		if acquired.HolderIdentity != "a" || acquired.LeaseDurationSeconds != 15 || acquired.LeaderTransitions != 0 {
			e.Errorf("the record says %+v", acquired)
		}
		e.Pass(10 * time.Minute)
		if !a.leads() || b.leads() || b.le.GetLeader() != "a" || a.noted("stopped") {
			e.Error("the lead did not last")
		}
		now, _ := e.get(e.lock("c"))
		if !now.AcquireTime.Equal(&acquired.AcquireTime) || now.LeaderTransitions != 0 || time.Since(now.RenewTime.Time) > lookPeriod {
			e.Errorf("the record says %+v, first it said %+v", now, acquired)
		}
		if reads.Fired() != 1 || written.Fired() < 200 {
			e.Errorf("the elector has read %d times, and written %d times", reads.Fired(), written.Fired())
		}
		stopped := time.Now()
		a.stop()
		if now, _ := e.get(e.lock("c")); now.HolderIdentity != "" || now.LeaseDurationSeconds != 1 {
			e.Errorf("after the release the record says %+v", now)
		}
		b.elected()
		if took := b.since().Sub(stopped); took > lookPeriod {
			e.Errorf("b led after %v", took)
		}
		if now, _ := e.get(e.lock("c")); now.HolderIdentity != "b" || now.LeaderTransitions != 1 {
			e.Errorf("the record says %+v", now)
		}
	})
}
