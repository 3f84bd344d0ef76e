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

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A fault is something that the nemesis does.
type fault struct {
	name    string
	class   string // D: the server loses data
	weight  int
	target  string // a worker or a server; s for all servers
	longest time.Duration
	hit     func(lasts time.Duration) (end func()) // end nil: the fault has no duration
}

// A nemesis has several faults at a time, and at most one at a target.
type nemesis struct {
	*world
	faults            []fault       // each as often as its weight
	shortest, longest time.Duration // of a fault; longest 0: as the fault has it
	rest              time.Duration // at most, between two faults

	mu   sync.Mutex
	rand *rand.Rand
	busy map[string]bool
	id   int
}

// newNemesis makes a nemesis of the faults with a name in only; without names, of all.
func newNemesis(w *world, seed uint64, only ...string) *nemesis {
	n := &nemesis{world: w, shortest: time.Millisecond, rest: w.base.TTL / 2, busy: map[string]bool{}}
	if w.base.Peers {
		n.shortest = w.base.TTL / 10 // most others are over before a lease is, and a comparison is short
	}
	n.rand = rand.New(rand.NewPCG(seed, 0))
	var all []fault
	for _, x := range w.workers {
		all = append(all, n.ofWorker(x)...)
	}
	for _, f := range w.top.faults {
		f.weight *= len(w.workers)
		all = append(all, f)
	}
	for _, f := range all {
		// The protocol of Redis has no ids, so most clients cannot survive a reply that comes twice, and no network sends one.
		isLeftOut := len(only) > 0 && !slices.Contains(only, f.name) || w.base.Peers && f.name == "reply twice"
		if !isLeftOut {
			n.faults = append(n.faults, slices.Repeat([]fault{f}, f.weight)...)
		}
	}
	return n
}

// ofWorker returns the faults of a process and of its network.
func (n *nemesis) ofWorker(x *worker) []fault {
	proxies := func(begin, end func(*proxy)) func(time.Duration) func() {
		return func(time.Duration) func() {
			some := n.some(x)
			for _, p := range some {
				begin(p)
			}
			return func() {
				for _, p := range some {
					end(p)
				}
			}
		}
	}
	network := func(w weather) func(time.Duration) func() {
		return proxies(func(p *proxy) { p.set(w) }, func(p *proxy) { p.set(weather{}) })
	}
	links := func(change func(*link)) func(time.Duration) func() {
		return proxies(
			func(p *proxy) { p.each(change) },
			func(p *proxy) { p.each(func(l *link) { l.stuck = false }) },
		)
	}
	ttl := n.base.TTL
	return []fault{
		{"kill", "S", 6, x.name, ttl, func(time.Duration) func() { x.kill(); return x.start }},
		{"freeze", "S", 10, x.name, 3 * ttl, func(time.Duration) func() {
			x.signal(syscall.SIGSTOP)
			return func() { x.signal(syscall.SIGCONT) }
		}},
		{"cut off", "S", 5, x.name, 2 * ttl, network(weather{holdRequests: true, holdReplies: true})},
		{"requests held", "S", 4, x.name, 2 * ttl, network(weather{holdRequests: true})},
		{"replies held", "S", 4, x.name, 2 * ttl, network(weather{holdReplies: true})},
		{"delay", "S", 3, x.name, 2 * ttl, network(weather{delay: ttl / 4})},
		{"single bytes", "S", 2, x.name, ttl, network(weather{split: true})},
		{"dials refused", "S", 3, x.name, ttl, network(weather{refuse: true})},
		{"connections stuck", "S", 5, x.name, 2 * ttl, links(func(l *link) { l.stuck = true })},
		{"reply lost", "S", 5, x.name, 0, links(func(l *link) { l.swallow = true })},
		{"reply twice", "S", 3, x.name, 0, links(func(l *link) { l.repeat = true })},
		{"connections reset", "S", 3, x.name, 0, links((*link).reset)},
	}
}

// some returns all proxies of a worker, or one of them.
func (n *nemesis) some(x *worker) (all []*proxy) {
	for _, address := range n.top.addresses {
		all = append(all, x.proxies[address])
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
	f, id, lasts, rest := n.choose()
	if id > 0 {
		event := history.Event{What: history.Begin, Fault: f.name, Class: f.class, Target: f.target, ID: id}
		n.log.Add(event)
		if end := f.hit(lasts); end != nil {
			retry.Sleep(ctx, lasts, nil)
			end()
		}
		event.What = history.End
		n.log.Add(event)
		n.mu.Lock()
		delete(n.busy, f.target)
		n.mu.Unlock()
	}
	retry.Sleep(ctx, rest, nil)
}

// choose returns the id 0 if the target has a fault, or enough servers have one.
func (n *nemesis) choose() (f fault, id int, lasts, rest time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f = n.faults[n.rand.IntN(len(n.faults))]
	// Short and long times are equally likely.
	times := float64(cmp.Or(n.longest, f.longest))/float64(n.shortest) + 1
	lasts = time.Duration(float64(n.shortest) * math.Pow(times, n.rand.Float64()))
	rest = time.Duration(n.rand.Int64N(int64(n.rest)))
	servers := 0
	for busy := range n.busy {
		if !strings.HasPrefix(busy, "w") {
			servers++
		}
	}
	if n.busy[f.target] || !strings.HasPrefix(f.target, "w") && servers >= n.top.together {
		return f, 0, 0, rest / 10
	}
	n.busy[f.target] = true
	n.id++
	return f, n.id, lasts, rest
}
