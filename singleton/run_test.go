package singleton_test

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// kill cuts a replica off for good, like a dead process: its connections end, and it can
// make no new ones.
func (f *fleet) kill(faults *lockcoretest.Faults) {
	f.Helper()
	faults.Partition()
	f.Cleanup(faults.Heal) // the rest of it must end
	if faults.Cut() == 0 {
		f.Error("the kill has met no connection")
	}
}

// receive takes one value from a channel.
func receive[T any](f *fleet, from <-chan T, what string) T {
	f.Helper()
	longest := patience
	if f.Bubble != nil {
		longest = 24 * time.Hour // virtual time costs nothing
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		f.Fatalf("in vain waited for %s", what)
		panic("unreachable")
	}
}

// listening returns how many clients wait for messages about a Once.
func (f *fleet) listening(once string) int64 {
	f.Helper()
	return f.Subscribers("job/once/"+once, "job:0:once/"+once)
}

// A replicaRun is a running call of Run.
type replicaRun struct {
	fleet  *fleet
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (f *fleet) run(run func(ctx context.Context) error) *replicaRun {
	ctx, cancel := context.WithCancel(f.Context())
	r := &replicaRun{fleet: f, cancel: cancel, done: make(chan struct{})}
	f.Cleanup(r.end)
	go func() {
		defer close(r.done)
		r.err = run(ctx)
	}()
	return r
}

// end cancels it and waits.
func (r *replicaRun) end() {
	r.cancel()
	<-r.done
}

// result waits for the end and returns the error.
func (r *replicaRun) result() error {
	r.fleet.Helper()
	receive(r.fleet, r.done, "the end of a run")
	return r.err
}
