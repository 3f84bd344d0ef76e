package chaos

import (
	"context"
	"errors"
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
	"github.com/noonlock/noonlock/lockcore"

	"github.com/noonlock/noonlock/internal/servers"
)

const (
	replicas = 5
	noons    = 60

	leastInRun      = 10 // kills between claim and complete
	leastInComplete = 3  // of these, between COMMIT and complete
)

// FAULTS 1, 2, 54 and 59 with real processes: five replicas, a noon every second,
// and every other second one of them is killed, and replaced, or frozen for a
// while. Every noon is drawn once all the same.
//
// NOONLOCK_CHAOS_SEED repeats the order and the moments of the faults, as far as
// the machine repeats the rest.
func TestChaos(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("NOONLOCK_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	servers.Count(t, "NOONLOCK_CHAOS_SEED=%d", seed)
	c := &chaos{
		world: newWorld(t), random: rand.New(rand.NewPCG(seed, 0)),
		begun: make(chan *replica, 1000), tally: map[string]int{},
	}
	for range replicas {
		c.spawn()
	}
	deck := slices.Concat(
		slices.Repeat([]fault{c.killAtBegin}, 5),
		slices.Repeat([]fault{c.killInTransaction}, 5),
		slices.Repeat([]fault{c.killAfterClaim}, 3),
		slices.Repeat([]fault{c.killAfterCommit}, 6),
		slices.Repeat([]fault{c.killAny}, 4),
		slices.Repeat([]fault{c.freezeAtBegin}, 3),
		slices.Repeat([]fault{c.freezeInTransaction}, 3),
		slices.Repeat([]fault{c.freezeAny}, 4),
	)
	c.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	first := c.awaitFirst(ctx)
	for _, fault := range deck {
		c.pause(ctx, time.Duration(c.random.Int64N(int64(every/2))))
		before := len(c.done(ctx))
		if err := fault(ctx); err != nil {
			t.Fatal(err)
		}
		// Most faults hit noons of their own, some the takeover of the one before.
		if c.random.IntN(4) > 0 {
			c.poll(ctx, "no noon was drawn after a fault", func() bool { return len(c.done(ctx)) > before })
		}
	}
	c.awaitNoon(ctx, first.Add((noons-1)*every))
	c.thaw.Wait()
	for _, r := range c.living() {
		if code, err := r.terminate(ctx); err != nil || code != 0 {
			t.Errorf("%s exits with %d after SIGTERM, %v", r.name, code, err)
		}
	}
	last := c.newest(ctx) // more may have been drawn before all had stopped

	for _, what := range []string{kills, inRun, inComplete, freezes, frozenInRun, noticed, found} {
		servers.Count(t, "%3d  %s", c.tally[what], what)
	}
	if n := c.tally[inRun]; n < leastInRun {
		t.Errorf("%d kills fell between claim and complete, want %d at least", n, leastInRun)
	}
	if n := c.tally[inComplete]; n < leastInComplete {
		t.Errorf("%d kills fell between COMMIT and complete, want %d at least", n, leastInComplete)
	}
	if c.tally[frozenInRun] == 0 || c.tally[noticed] == 0 {
		t.Errorf("%d holders were frozen, and %d noticed that they had lost their run; want some of both", c.tally[frozenInRun], c.tally[noticed])
	}
	c.verify(ctx, first, last)
}

// What is counted.
const (
	kills       = "kills (SIGKILL)"
	inRun       = "of the kills, between claim and complete"
	inComplete  = "of these, between COMMIT and complete"
	freezes     = "freezes (SIGSTOP, then SIGCONT)"
	frozenInRun = "of the freezes, between claim and complete"
	noticed     = "holders that woke up and noticed that another had taken over"
	found       = "draws that a successor found committed by a dead replica"
)

type chaos struct {
	*world
	random  *rand.Rand
	spawned int
	begun   chan *replica // whose log says that a run begins

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

// hear is called with what the replicas log.
func (c *chaos) hear(r *replica, e logtest.Entry) {
	switch e.Message {
	case "run begins":
		select {
		case c.begun <- r:
		default: // nobody has listened for long
		}
	case "run is lost to this replica; another takes the tick over":
		c.count(noticed)
	case "draw had been committed before":
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

// kill kills a replica, finds out what it was doing, and starts another.
func (c *chaos) kill(ctx context.Context, r *replica) {
	c.mu.Lock()
	c.alive = slices.DeleteFunc(c.alive, func(other *replica) bool { return other == r })
	c.mu.Unlock()
	r.kill()
	c.count(kills)
	// It is gone, so what it holds in the ledger it will never complete.
	if run, ok := c.running(ctx, r); ok {
		c.count(inRun)
		if c.drawer(ctx, run.Tick) == r.name {
			c.count(inComplete)
		}
	}
	c.spawn()
}

// freeze stops a replica for longer than its lease is valid, and does not wait.
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

func (c *chaos) done(ctx context.Context) []lockcore.RunRecord {
	c.t.Helper()
	runs, err := c.ledger.Runs(ctx, noon.KeepRuns)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.t.Fatal(err)
	}
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
