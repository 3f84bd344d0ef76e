package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/logtest"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// scale is the size of a run.
type scale struct{ replicas, noons int }

// The minimum numbers of faults grow with the number of noons.
func (s scale) leastInRun() int      { return s.noons / 6 }  // kills between claim and complete
func (s scale) leastInComplete() int { return s.noons / 20 } // kills between COMMIT and complete
func (s scale) leastRestarts() int   { return s.noons / 15 } // restarts of Redis

// newScale returns the scale of make test, make nightly, or the environment.
func newScale(t *testing.T) scale {
	t.Helper()
	s := scale{replicas: testenv.Size(5, 8), noons: testenv.Size(14, 300)}
	for name, number := range map[string]*int{"NOONLOCK_CHAOS_REPLICAS": &s.replicas, "NOONLOCK_CHAOS_NOONS": &s.noons} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 3 || n > 10_000 {
			t.Fatalf("%s is %q; it must be a whole number from 3 to 10000", name, text)
		}
		*number = n
	}
	return s
}

// FAULTS 1, 2, 14, 54 and 59 with real processes: several replicas, a noon every second,
// and a fault every other second. A replica is killed and replaced, or frozen for a while,
// or Redis is killed and restarted. Every noon is still drawn once.
//
// NOONLOCK_CHAOS_REPLICAS and NOONLOCK_CHAOS_NOONS set a larger scale. NOONLOCK_CHAOS_SEED
// repeats the order and the times of the faults, as far as the machine is deterministic.
func TestChaos(t *testing.T) {
	t.Parallel()
	scale := newScale(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience+3*every*time.Duration(scale.noons))
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("NOONLOCK_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	servers.Count(t, "NOONLOCK_CHAOS_SEED=%d NOONLOCK_CHAOS_REPLICAS=%d NOONLOCK_CHAOS_NOONS=%d", seed, scale.replicas, scale.noons)
	c := &chaos{
		world: newWorld(t), random: rand.New(rand.NewPCG(seed, 0)),
		begun: make(chan *replica, 1000), tally: map[string]int{},
	}
	for range scale.replicas {
		c.spawn()
	}
	first := c.awaitFirst(ctx)
	for _, fault := range c.deck(scale) {
		c.pause(ctx, time.Duration(c.random.Int64N(int64(every/2))))
		before := len(c.done(ctx))
		if err := fault(ctx); err != nil {
			t.Fatal(err)
		}
		// Most faults hit separate noons, some hit the takeover of the previous one.
		if c.random.IntN(4) > 0 {
			c.poll(ctx, "no noon was drawn after a fault", func() bool { return len(c.done(ctx)) > before })
		}
	}
	c.awaitNoon(ctx, first.Add(time.Duration(scale.noons-1)*every))
	c.thaw.Wait()
	for _, r := range c.living() {
		if code, err := r.terminate(ctx); err != nil || code != 0 {
			t.Errorf("%s exits with %d after SIGTERM, %v", r.name, code, err)
		}
	}
	last := c.newest(ctx) // more noons may have been drawn before all replicas stopped

	for _, what := range []string{kills, inRun, inComplete, freezes, frozenInRun, restarts, restartInRun, noticed, found} {
		servers.Count(t, "%3d  %s", c.tally[what], what)
	}
	for what, least := range map[string]int{
		inRun: scale.leastInRun(), inComplete: scale.leastInComplete(), restarts: scale.leastRestarts(), frozenInRun: 1, noticed: 1,
	} {
		if n := c.tally[what]; n < least {
			t.Errorf("%d %s, want %d at least", n, what, least)
		}
	}
	c.verify(ctx, first, last)
}

// deck returns the faults in random order.
func (c *chaos) deck(s scale) []fault {
	times := func(n int, f fault) []fault { return slices.Repeat([]fault{f}, (n*s.noons+59)/60) }
	deck := slices.Concat(
		times(5, c.killAtBegin), times(5, c.killInTransaction), times(3, c.killAfterClaim), times(6, c.killAfterCommit), times(3, c.killAny),
		times(3, c.freezeAtBegin), times(3, c.freezeInTransaction), times(3, c.freezeAny),
		times(2, c.restartRedis), times(2, c.restartRedisInRun), times(1, c.killWithRedis), times(1, c.freezeWithRedis),
	)
	c.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

// The counters.
const (
	kills       = "kills (SIGKILL)"
	inRun       = "of the kills, between claim and complete"
	inComplete  = "of these, between COMMIT and complete"
	freezes     = "freezes (SIGSTOP, then SIGCONT)"
	frozenInRun = "of the freezes, between claim and complete"

	restarts     = "restarts of Redis (SIGKILL, with appendfsync always)"
	restartInRun = "of these, between a claim and its complete"

	noticed = "holders that noticed that they had lost their run"
	found   = "draws that a successor found committed by another"
)

type chaos struct {
	*world
	random  *rand.Rand
	spawned int
	begun   chan *replica // replicas whose log reports the start of a run

	thaw sync.WaitGroup // frozen replicas

	mu    sync.Mutex
	alive []*replica
	tally map[string]int
}

func (c *chaos) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally[what]++
}

func (c *chaos) spawn() {
	c.spawned++
	r := c.start(fmt.Sprintf("replica-%d", c.spawned), c.hear)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive = append(c.alive, r)
}

// hear is called with each line that a replica logs.
func (c *chaos) hear(r *replica, e logtest.Entry) {
	switch e.Message {
	case "run begins":
		select {
		case c.begun <- r:
		default: // no fault is waiting for a run
		}
	case "run lost; another replica takes over":
		c.count(noticed)
	case "draw was already committed":
		c.count(found)
	}
}

func (c *chaos) living() []*replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.alive)
}

func (c *chaos) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// kill kills a replica, determines what it was doing, and starts another one.
func (c *chaos) kill(ctx context.Context, r *replica) {
	c.mu.Lock()
	c.alive = slices.DeleteFunc(c.alive, func(other *replica) bool { return other == r })
	c.mu.Unlock()
	r.kill()
	c.count(kills)
	// The replica is dead, so it will not complete a run that it holds in the ledger.
	if run, ok := c.running(ctx, r); ok {
		c.count(inRun)
		if c.drawer(ctx, run.Tick) == r.name {
			c.count(inComplete)
		}
	}
	c.spawn()
}

// freeze stops a replica for longer than its lease, without waiting for it.
func (c *chaos) freeze(ctx context.Context, r *replica) {
	r.signal(syscall.SIGSTOP)
	c.count(freezes)
	if _, ok := c.running(ctx, r); ok {
		c.count(frozenInRun)
	}
	d := lease + lease/4 + time.Duration(c.random.Int64N(int64(lease)))
	c.thaw.Go(func() {
		c.pause(ctx, d)
		r.signal(syscall.SIGCONT)
	})
}

// bounce kills Redis and restarts it after a while, in which leases may expire.
func (c *chaos) bounce(ctx context.Context) {
	c.t.Helper()
	c.server.Kill()
	c.count(restarts)
	c.pause(ctx, time.Duration(c.random.Int64N(int64(lease*3/2))))
	c.server.Restart(c.t)
}

func (c *chaos) done(ctx context.Context) []singleton.Entry {
	c.t.Helper()
	var runs []singleton.Entry
	c.retry(ctx, func() (err error) {
		runs, err = c.ledger.Runs(ctx, noon.KeepRuns)
		return err
	})
	return runs
}

// awaitFirst returns the first noon that was drawn.
func (c *chaos) awaitFirst(ctx context.Context) (first time.Time) {
	c.t.Helper()
	c.poll(ctx, "no noon was drawn", func() bool {
		runs := c.done(ctx)
		if len(runs) > 0 {
			first = runs[len(runs)-1].Tick
		}
		return len(runs) > 0
	})
	return first
}

// awaitNoon waits until the noon was drawn, or a later one.
func (c *chaos) awaitNoon(ctx context.Context, tick time.Time) {
	c.t.Helper()
	c.poll(ctx, "the last noon was not drawn", func() bool {
		runs := c.done(ctx)
		return len(runs) > 0 && !runs[0].Tick.Before(tick)
	})
}

// newest returns the last noon that was drawn.
func (c *chaos) newest(ctx context.Context) (at time.Time) {
	c.t.Helper()
	for _, run := range c.done(ctx) {
		if run.Tick.After(at) {
			at = run.Tick
		}
	}
	return at
}
