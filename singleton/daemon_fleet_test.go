package singleton_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

var errBroken = errors.New("broken on purpose")

// A daemonFleet is a fleet whose replicas record when the function works.
type daemonFleet struct {
	*fleet
	history *lockcoretest.History
}

// fleetInBubble runs a test in virtual time.
func fleetInBubble(t *testing.T, test func(t *testing.T, f *daemonFleet)) {
	t.Helper()
	t.Parallel()
	bubbleFleet(t, told(test))
}

// fleetOnBoth runs a test in virtual time and on a real server.
func fleetOnBoth(t *testing.T, test func(t *testing.T, f *daemonFleet)) {
	t.Helper()
	inFleets(t, told(test))
}

func told(test func(t *testing.T, f *daemonFleet)) func(t *testing.T, f *fleet) {
	return func(t *testing.T, f *fleet) {
		t.Helper()
		sf := &daemonFleet{fleet: f}
		sf.history = lockcoretest.NewHistory(sf.clock)
		test(t, sf)
	}
}

func (f *daemonFleet) clock() time.Duration { return time.Since(f.start) }

// client makes the client of a replica, closed at the end of the test.
func (f *daemonFleet) client(identity string) *lockcore.Client {
	f.Helper()
	return f.fleet.client(f.direct(), lockcore.Config{Identity: identity})
}

// linked returns a client with its own network.
func (f *daemonFleet) linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	f.Helper()
	opt, faults := f.link()
	return f.fleet.client(opt, lockcore.Config{Identity: identity}), faults
}

// kill cuts a replica off for good, like a dead process: its connections end, and it can
// make no new ones.
func (f *daemonFleet) kill(faults *lockcoretest.Faults) {
	f.Helper()
	faults.Partition()
	f.Cleanup(faults.Heal) // the rest of it must end
	if faults.Cut() == 0 {
		f.Error("the kill has met no connection")
	}
}

// receive takes one value from a channel.
func receive[T any](f *daemonFleet, from <-chan T, what string) T {
	f.Helper()
	longest := patience
	if f.bubble != nil {
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

// inLine returns how many replicas are queued for a daemon.
func (f *daemonFleet) inLine(daemon string) int64 {
	f.Helper()
	n, err := f.raw.ZCard(f.Context(), "noonlock:{job/daemon/"+daemon+"}:queue").Result()
	if err != nil {
		f.Fatal(err)
	}
	return n
}

// listening returns how many clients wait for messages about a Once.
func (f *daemonFleet) listening(once string) int64 {
	f.Helper()
	channel := "noonlock:job:once/" + once
	n, err := f.raw.PubSubNumSub(f.Context(), channel).Result()
	if err != nil {
		f.Fatal(err)
	}
	return n[channel]
}

// A job of the fleet records when it works.
func (f *daemonFleet) begins(proc string, token uint64) {
	f.history.Record(lockcoretest.Event{Proc: proc, Name: "work", Op: lockcoretest.Acquire, Token: token})
}

func (f *daemonFleet) ends(proc string, token uint64) {
	f.history.Record(lockcoretest.Event{Proc: proc, Name: "work", Op: lockcoretest.Release, Token: token})
}

// stoppedInTime asserts that the work of each holder had ended when the work of the next
// one began. On a busy machine the timer that ends it may run later than the lease allows;
// then only the context's check of the clock helps. So it is asserted in virtual time only.
func (f *daemonFleet) stoppedInTime(t *testing.T) {
	t.Helper()
	if f.bubble != nil {
		f.history.Require(t)
	}
}

// A replicaRun is a running call of Run.
type replicaRun struct {
	f      *daemonFleet
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (f *daemonFleet) run(run func(ctx context.Context) error) *replicaRun {
	ctx, cancel := context.WithCancel(f.Context())
	r := &replicaRun{f: f, cancel: cancel, done: make(chan struct{})}
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
	r.f.Helper()
	receive(r.f, r.done, "the end of a run")
	return r.err
}

func (r *replicaRun) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// A tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *tally) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}
