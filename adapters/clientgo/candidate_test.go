package clientgo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
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
	ended   time.Time // time at which Run returned, zero before
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
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = time.Now()
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
