package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Many candidates campaign and leave at random times. When
// all are gone, there is no lock, no queue and no leader.
//
// Caught mutant: a leadership that is granted too late to begin is kept.
func TestFault50_StopsRaceStarts(t *testing.T) {
	onBoth(t, func(e *env) {
		total := testenv.Size(500, 2_500)
		if e.Bubble == nil {
			total = testenv.Size(2_000, 10_000)
		}
		clients := []*lockcore.Client{e.Client("a"), e.Client("b"), e.Client("c")}
		var wg sync.WaitGroup
		var led, stops atomic.Int64
		const workers = 50
		// On a busy machine none may lead in so short a time. Then all of them have twice the time.
		for longest := 20 * time.Millisecond; led.Load() == 0 && longest < patience; longest *= 2 {
			for w := range workers {
				rnd := rand.New(rand.NewPCG(1, uint64(w))) //nolint:gosec // a test's choices
				wg.Go(func() {
					for range total / workers {
						name := fmt.Sprint(electionName, rnd.IntN(4))
						le, err := election.NewLeaderElector(clients[rnd.IntN(3)], name, election.Callbacks{
							OnStartedLeading: func(context.Context) { led.Add(1) },
							OnStoppedLeading: func() { stops.Add(1) },
							OnNewLeader:      func(string) {},
						}, quick())
						if err != nil {
							t.Error(err)
							return
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.Int64N(int64(longest))))
						if err := le.Run(ctx); err != nil {
							t.Error(err)
						}
						cancel()
					}
				})
			}
			wg.Wait()
		}
		if led.Load() == 0 || led.Load() != stops.Load() {
			t.Errorf("%d leads, %d ends", led.Load(), stops.Load())
		}
		servers.Count(t, "%d of %d candidates that were stopped had led", led.Load(), total)
		begin := e.Clock()
		e.Until("no lock and no queue are left", func() bool {
			left := 0
			for i := range 4 {
				prefix := fmt.Sprintf("noonlock:{election/%s%d}:", electionName, i)
				n, err := e.Raw.Exists(e.Context(), prefix+"lock", prefix+"queue").Result()
				must(e, err)
				left += int(n)
			}
			return left == 0
		})
		if took := e.Clock() - begin; e.Bubble != nil && took > 100*time.Millisecond {
			t.Errorf("something was left for %v", took)
		}
	})
}

// Electors are started, stopped, killed, cut off and made to resign at random. At any time
// at most one leads, and in the end one does.
func TestStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Size(2, 8)) { //nolint:gosec // it is positive
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				rnd := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's choices
				type node struct {
					*replica
					client *lockcore.Client
					net    *lockcoretest.Faults
				}
				var nodes []*node
				for i := range 5 {
					c, f := e.Linked(fmt.Sprint("n", i))
					n := &node{client: c, net: f}
					n.replica = e.replica(c, quick()).run()
					nodes = append(nodes, n)
				}
				for range 300 {
					n := nodes[rnd.IntN(len(nodes))]
					switch rnd.IntN(8) {
					case 0:
						n.cancel(errStopped)
						n.net.Heal()
						n.wait()
						n.replica = e.replica(n.client, quick()).run()
					case 1:
						n.net.Partition()
					case 2:
						n.net.Heal()
					case 3:
						n.net.Cut()
						n.net.Heal()
					case 4:
						n.net.CutSubscriptions()
					case 5, 6:
						done, cancel := context.WithCancel(context.Background())
						cancel()
						_ = n.le.Resign(done)
					case 7:
						if rnd.IntN(4) == 0 {
							must(e, e.Raw.ScriptFlush(e.Context()).Err())
						}
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						_ = n.le.TransferTo(ctx, fmt.Sprint("n", rnd.IntN(5)))
						cancel()
					}
					time.Sleep(time.Duration(rnd.Int64N(int64(leaseDuration))))
				}
				for _, n := range nodes {
					n.net.Heal()
				}
				e.Until("one leads, and the others are queued", func() bool {
					leaders := 0
					for _, n := range nodes {
						if n.le.IsLeader() {
							leaders++
						}
					}
					return leaders == 1 && e.Raw.ZCard(e.Context(), key("queue")).Val() == 4
				})
				e.history.Require(e)
				terms := 0
				for _, ev := range e.history.Events() {
					if ev.Op == testenv.Acquire {
						terms++
					}
				}
				t.Logf("%d leads", terms)
			})
		})
	}
}
