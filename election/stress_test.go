package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

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
