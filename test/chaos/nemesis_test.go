package chaos

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A fault is something that the nemesis does.
type fault struct {
	name    string
	class   string // D: the server loses data
	weight  int
	targets []string                                        // one of them has it
	longest time.Duration                                   // 0: it takes no time
	hit     func(target string, lasts time.Duration) func() // returns what ends the fault, or nil
}

// A nemesis has several faults at a time, and at most one at a target.
type nemesis struct {
	*world
	faults            []fault
	shortest, longest time.Duration // of a fault; longest 0: as the fault has it

	mu   sync.Mutex
	rand *rand.Rand
	busy map[string]bool
	id   int
}

// newNemesis makes a nemesis of the faults with a name in only; without names, of all.
func newNemesis(w *world, seed uint64, only ...string) *nemesis {
	n := &nemesis{world: w, shortest: time.Millisecond, rand: rand.New(rand.NewPCG(seed, 0)), busy: map[string]bool{}}
	for _, f := range slices.Concat(n.ofWorkers(), w.top.faults) {
		if len(only) == 0 || slices.Contains(only, f.name) {
			n.faults = append(n.faults, f)
		}
	}
	return n
}

// ofWorkers returns the faults of processes and of their networks.
func (n *nemesis) ofWorkers() []fault {
	var names []string
	for _, x := range n.workers {
		names = append(names, x.name)
	}
	of := func(target string) *worker { return n.workers[slices.Index(names, target)] }
	network := func(bad weather) func(string, time.Duration) func() {
		return func(target string, lasts time.Duration) func() {
			proxies := n.some(of(target))
			w := bad
			if w.delay > 0 {
				w.delay = min(lasts, w.delay)
			}
			for _, p := range proxies {
				p.set(w)
				if w.refuse {
					p.reset()
				}
			}
			return func() {
				for _, p := range proxies {
					p.set(weather{})
				}
			}
		}
	}
	links := func(begin, end func(*link)) func(string, time.Duration) func() {
		return func(target string, _ time.Duration) func() {
			proxies := n.some(of(target))
			for _, p := range proxies {
				p.each(begin)
			}
			if end == nil {
				return nil
			}
			return func() {
				for _, p := range proxies {
					p.each(end)
				}
			}
		}
	}
	ttl := n.base.TTL
	return []fault{
		{"kill", "S", 6, names, ttl, func(target string, _ time.Duration) func() {
			of(target).kill()
			return of(target).start
		}},
		{"freeze", "S", 10, names, 3 * ttl, func(target string, _ time.Duration) func() {
			of(target).signal(syscall.SIGSTOP)
			return func() { of(target).signal(syscall.SIGCONT) }
		}},
		{"cut off", "S", 5, names, 2 * ttl, network(weather{holdRequests: true, holdReplies: true})},
		{"requests held", "S", 4, names, 2 * ttl, network(weather{holdRequests: true})},
		{"replies held", "S", 4, names, 2 * ttl, network(weather{holdReplies: true})},
		{"delay", "S", 3, names, 2 * ttl, network(weather{delay: ttl / 4})},
		{"single bytes", "S", 2, names, ttl, network(weather{split: true})},
		{"dials refused", "S", 3, names, ttl, network(weather{refuse: true})},
		{"connections stuck", "S", 5, names, 2 * ttl, links(func(x *link) { x.stuck = true }, func(x *link) { x.stuck = false })},
		{"reply lost", "S", 5, names, 0, links(func(x *link) { x.swallow = true }, nil)},
		{"connections reset", "S", 3, names, 0, links((*link).reset, nil)},
	}
}

// some returns all proxies of a worker, or one of them.
func (n *nemesis) some(x *worker) (all []*proxy) {
	for _, s := range slices.Concat(n.top.servers, n.top.sentinels) {
		all = append(all, x.proxies[s.Addr()])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rand.IntN(3) == 0 {
		at := n.rand.IntN(len(all))
		return all[at : at+1]
	}
	return all
}

// run has atOnce faults at a time until ctx ends. All have ended when it returns.
func (n *nemesis) run(ctx context.Context, atOnce int) {
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for ctx.Err() == nil {
				n.strike(ctx)
			}
		})
	}
	all.Wait()
}

func (n *nemesis) strike(ctx context.Context) {
	f, target, id, lasts, rest := n.choose()
	if target != "" {
		event := history.Event{What: history.Begin, Fault: f.name, Class: f.class, Target: target, ID: id}
		n.log.Add(event)
		end := f.hit(target, lasts)
		if end != nil {
			sleep(ctx, lasts)
			end()
		}
		event.What = history.End
		n.log.Add(event)
		n.mu.Lock()
		delete(n.busy, target)
		n.mu.Unlock()
	}
	sleep(ctx, rest)
}

// choose returns no target if the chosen one has a fault.
func (n *nemesis) choose() (f fault, target string, id int, lasts, rest time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := 0
	for _, f := range n.faults {
		all += f.weight
	}
	pick := n.rand.IntN(all)
	for _, f = range n.faults {
		if pick -= f.weight; pick < 0 {
			break
		}
	}
	target = f.targets[n.rand.IntN(len(f.targets))]
	// Short and long times are equally likely.
	lasts = time.Duration(float64(n.shortest) * math.Exp(n.rand.Float64()*math.Log(float64(cmp.Or(n.longest, f.longest))/float64(n.shortest)+1)))
	rest = time.Duration(n.rand.Int64N(int64(n.base.TTL / 2)))
	servers := 0
	for busy := range n.busy {
		if !strings.HasPrefix(busy, "w") {
			servers++
		}
	}
	if n.busy[target] || !strings.HasPrefix(target, "w") && servers >= n.top.together {
		return f, "", 0, 0, rest / 10
	}
	n.busy[target] = true
	n.id++
	return f, target, n.id, lasts, rest
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
