package singleton_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Bounds every wait for something that must happen; nothing is measured against
// them. Virtual time costs nothing.
const (
	fleetPatience   = 60 * time.Second
	virtualPatience = 24 * time.Hour
)

var errBroken = errors.New("broken on purpose")

// A serviceFleet is replicas with clients of their own on one server: miniredis
// in a bubble of virtual time, or a redis-server.
type serviceFleet struct {
	*testing.T
	bubble  *lockcoretest.Redis // nil on a real server
	addr    string
	raw     *redis.Client
	start   time.Time
	history *lockcoretest.History
}

// fleetInBubble runs a test in virtual time.
func fleetInBubble(t *testing.T, test func(t *testing.T, f *serviceFleet)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rd := lockcoretest.NewRedis(t)
		test(t, newServiceFleet(t, rd, "", rd.Client()))
	})
}

// fleetOnBoth runs a test in virtual time and on a real server.
func fleetOnBoth(t *testing.T, test func(t *testing.T, f *serviceFleet)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) { fleetInBubble(t, test) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		addr := servers.Redis(t).Addr()
		raw := redis.NewClient(fleetOptions(addr))
		t.Cleanup(func() { raw.Close() })
		test(t, newServiceFleet(t, nil, addr, raw))
	})
}

func newServiceFleet(t *testing.T, rd *lockcoretest.Redis, addr string, raw *redis.Client) *serviceFleet {
	t.Helper()
	f := &serviceFleet{T: t, bubble: rd, addr: addr, raw: raw, start: time.Now()}
	f.history = lockcoretest.NewHistory(f.clock)
	return f
}

func fleetOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (f *serviceFleet) clock() time.Duration { return time.Since(f.start) }

// client makes the client of a replica, closed at the end of the test.
func (f *serviceFleet) client(identity string) *lockcore.Client {
	f.Helper()
	if f.bubble != nil {
		return f.clientWith(identity, f.bubble.Options())
	}
	return f.clientWith(identity, fleetOptions(f.addr))
}

// linked is client with a network of its own.
func (f *serviceFleet) linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	f.Helper()
	if f.bubble != nil {
		faults := lockcoretest.NewFaults()
		return f.clientWith(identity, f.bubble.OptionsVia(faults)), faults
	}
	proxy := lockcoretest.NewProxy(f, f.addr)
	return f.clientWith(identity, fleetOptions(proxy.Addr())), proxy.Faults()
}

func (f *serviceFleet) clientWith(identity string, opt *redis.Options) *lockcore.Client {
	f.Helper()
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, lockcore.Config{Identity: identity, Clock: f.clock})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, lockcore.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			f.Errorf("Close: %v", err)
		}
		rdb.Close()
	})
	return c
}

// kill cuts a replica off for good, as if it were dead: its connections end and
// no new one can be made.
func (f *serviceFleet) kill(faults *lockcoretest.Faults) {
	f.Helper()
	faults.Partition()
	f.Cleanup(faults.Heal) // what is left of it shall end
	if faults.Cut() == 0 {
		f.Error("the kill has met no connection")
	}
}

func (f *serviceFleet) patience() time.Duration {
	if f.bubble != nil {
		return virtualPatience
	}
	return fleetPatience
}

// until waits for a condition.
func (f *serviceFleet) until(what string, condition func() bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fleetPatience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if f.bubble != nil {
			synctest.Wait()
		}
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Fatalf("in vain waited until %s", what)
		}
	}
}

// receive takes one value from a channel.
func receive[T any](f *serviceFleet, from <-chan T, what string) T {
	f.Helper()
	timer := time.NewTimer(f.patience())
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		f.Fatalf("in vain waited for %s", what)
		panic("unreachable")
	}
}

// inLine is how many stand in line for a service.
func (f *serviceFleet) inLine(service string) int64 {
	f.Helper()
	n, err := f.raw.ZCard(f.Context(), "noonlock:{service/"+service+"}:queue").Result()
	if err != nil {
		f.Fatal(err)
	}
	return n
}

// listening is how many clients wait for news of a Once.
func (f *serviceFleet) listening(once string) int64 {
	f.Helper()
	channel := "noonlock:job:once/" + once
	n, err := f.raw.PubSubNumSub(f.Context(), channel).Result()
	if err != nil {
		f.Fatal(err)
	}
	return n[channel]
}

// A job of the fleet tells the history when it works.
func (f *serviceFleet) begins(proc string, token uint64) {
	f.history.Record(lockcoretest.Event{Proc: proc, Name: "work", Op: lockcoretest.Acquire, Token: token})
}

func (f *serviceFleet) ends(proc string, token uint64) {
	f.history.Record(lockcoretest.Event{Proc: proc, Name: "work", Op: lockcoretest.Release, Token: token})
}

// A replicaRun is a Run under way.
type replicaRun struct {
	f      *serviceFleet
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (f *serviceFleet) run(run func(ctx context.Context) error) *replicaRun {
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
