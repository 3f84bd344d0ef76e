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
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A thousand candidates, and a thousand hand-overs: one grant each, in order of arrival.
// The cost of a hand-over does not grow with the queue.
//
// Caught mutant: a release notifies all waiters.
func TestFault40_ThousandCandidates(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		const many = 1000
		var acquires atomic.Int64
		_, err := e.Bubble.Faults().Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			if script("mutex_acquire")(cmd) {
				acquires.Add(1)
			}
			return false // it only counts
		}})
		must(e, err)
		var clients []*lockcore.Client
		for i := range 10 {
			clients = append(clients, e.Client(fmt.Sprint("c", i)))
		}
		var all []*replica
		for i := range many {
			all = append(all, e.replica(clients[i%10], election.Config{Identity: fmt.Sprint("r", i), LeaseDuration: time.Hour, Once: true}))
		}
		e.queueUp(all...)
		for i, r := range all {
			if term, n := r.term(); n != 1 || term.Number != uint64(i+1) {
				t.Fatalf("candidate %d leads %d times, for term %d", i, n, term.Number)
			}
			before, begin := acquires.Load(), e.Clock()
			must(e, r.le.Resign(e.Context()))
			e.WaitIdle()
			if n := acquires.Load() - before; n > 2 || e.Clock() != begin {
				t.Fatalf("hand-over %d took %d acquires and %v", i, n, e.Clock()-begin)
			}
		}
		e.history.Require(e)
	})
}

// Ten thousand candidates, fewer in the bubble, campaign and leave at random times. When
// all are gone, there is no lock, no queue and no leader.
//
// Caught mutant: a leadership that is granted too late to begin is kept.
func TestFault50_StopsRaceStarts(t *testing.T) {
	onBoth(t, func(e *env) {
		total := 2_500
		if e.Bubble == nil {
			total = 10_000
		}
		clients := []*lockcore.Client{e.Client("a"), e.Client("b"), e.Client("c")}
		var wg sync.WaitGroup
		var led, stops atomic.Int64
		const workers = 50
		for w := range workers {
			rnd := rand.New(rand.NewPCG(1, uint64(w))) //nolint:gosec // a test's choices
			wg.Go(func() {
				for range total / workers {
					name := fmt.Sprint(electionName, rnd.IntN(4))
					le, err := election.NewLeaderElector(clients[rnd.IntN(3)], name, election.Callbacks{
						OnStartedLeading: func(context.Context) { led.Add(1) },
						OnStoppedLeading: func() { stops.Add(1) },
						OnNewLeader:      func(string) {},
					}, quick("x"))
					if err != nil {
						t.Error(err)
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.Int64N(int64(20*time.Millisecond))))
					if err := le.Run(ctx); err != nil {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
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

// The lease is released while a renewal is under way, which arrives afterwards. It restores
// neither the lock nor the record.
//
// Caught mutants: a renewal with SET; a record written without a check of the lock.
func TestFault51_ReleaseWhileRenewing(t *testing.T) {
	onBoth(t, func(e *env) {
		c, f := e.Linked("a")
		for _, successor := range []bool{false, true} {
			cfg := quick("")
			cfg.LeaseDuration, cfg.RenewDeadline = 10*time.Second, 8*time.Second
			next := cfg
			cfg.Once = true
			a, b := e.replica(c, cfg), e.replica(e.Client("b"), next)
			a.run().leads(1)
			if successor {
				b.run()
				e.queued(1)
			}
			e.Pass(2 * retryPeriod) // the server knows the script now
			late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: script("leader_renew"), Count: 1})
			must(e, late.Wait(e.Context(), 1))
			must(e, a.le.Resign(e.Context()))
			a.wait()
			want := ""
			if successor {
				b.leads(1)
				want = "b"
			}
			late.Lift()
			e.Pass(retryPeriod)
			if got := e.record()["holder"]; got != want {
				t.Errorf("the record's holder is %q, want %q", got, want)
			}
			if e.Exists(key("lock")) != successor {
				t.Errorf("there is a lock: %v", !successor)
			}
			if successor && !b.le.IsLeader() {
				t.Error("the late renewal ended the successor's lead")
			}
		}
		e.history.Require(e)
	})
}

// Electors are started, stopped, killed, cut off and made to resign at random. At any time
// at most one leads, and in the end one does.
func TestStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
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
					n.replica = e.replica(c, quick("")).run()
					nodes = append(nodes, n)
				}
				for range 300 {
					n := nodes[rnd.IntN(len(nodes))]
					switch rnd.IntN(8) {
					case 0:
						n.cancel(errStopped)
						n.net.Heal()
						n.wait()
						n.replica = e.replica(n.client, quick("")).run()
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
					if ev.Op == lockcoretest.Acquire {
						terms++
					}
				}
				t.Logf("%d leads", terms)
			})
		})
	}
}
