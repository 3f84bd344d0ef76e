package cluster

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

const maxAsked = 8 // nodes in a refresh

// refresh starts a refresh of the slot table. During a refresh and the pause after it, the next refresh starts after
// the pause.
func (c *Cluster) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.refreshing:
		c.refreshAgain = true
	default:
		c.refreshing = true
		c.wg.Go(c.run)
	}
}

func (c *Cluster) run() {
	for {
		found, err := c.surveyor.survey(c.ctx, c.surveyed())
		pause := c.install(found, err)
		retry.Sleep(c.ctx, pause, nil)
		c.mu.Lock()
		again := c.refreshAgain && !c.closed
		c.refreshAgain, c.refreshing = false, again
		c.mu.Unlock()
		if !again {
			return
		}
	}
}

// surveyed returns the addresses to ask, at most maxAsked: first the user's addresses, which are right even if all
// nodes have moved, and then the addresses of primaries and replicas. Both groups are in random order.
func (c *Cluster) surveyed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Concat(c.seeds, slices.Collect(maps.Keys(c.replicas)), slices.Collect(maps.Keys(c.nodes)))
	slices.Sort(all)
	all = slices.Compact(all)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rank := func(addr string) int {
		if slices.Contains(c.seeds, addr) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all[:min(len(all), maxAsked)]
}

// install makes the view of a survey the slot table. After a failed survey, the table stays. install returns the pause
// before the next refresh.
func (c *Cluster) install(found *view, err error) (pause time.Duration) {
	c.mu.Lock()
	c.failure = err
	var former []*wire.Server
	var disputed map[*wire.Server]time.Duration
	if err == nil && !c.closed {
		c.adopt(found)
		former = c.discard()
		disputed = c.disputed(found.ok)
	}
	moved := c.moved
	c.moved = false
	nodes := slices.Collect(maps.Values(c.nodes))
	if moved {
		c.pauses.Reset()
	}
	pause = c.pauses.NextBackOff()
	close(c.refreshed)
	c.refreshed = make(chan struct{})
	c.mu.Unlock()
	for s, denied := range disputed {
		c.replace(s, denied)
	}
	c.report()
	if moved {
		c.uses.move(c.owner)
		c.cfg.Missed("")
	}
	for _, s := range nodes {
		s.Subscription().SubscribeAgain()
	}
	for _, s := range former {
		s.Close()
	}
	return pause
}

// adopt changes the table. A slot that no node serves keeps its server. The caller holds mu.
func (c *Cluster) adopt(v *view) {
	for _, r := range v.primaries {
		s := c.node(r.addr)
		for slot := r.first; slot <= r.last; slot++ {
			c.change(slot, s)
		}
	}
	c.replicas = v.replicas
}

// node returns the server at an address. The caller holds mu, and closed is false.
func (c *Cluster) node(addr string) *wire.Server {
	if s := c.nodes[addr]; s != nil {
		return s
	}
	opt := c.opt
	opt.Addr = addr
	cfg := c.cfg
	var s *wire.Server
	cfg.Failed = func(r wire.Request, err error) {
		c.assess(err)
		c.report()
		if !wire.HasCode(err, "MOVED") {
			c.cfg.Failed(r, err)
		}
	}
	s = wire.NewServer(opt, wire.Node{
		Tag: func() (string, bool) { return c.tag(s) },
		Renewed: func(ctx context.Context, requests []wire.Request, answers []wire.Answer) {
			c.followSlots(ctx, s, requests, answers)
		},
		Refused: func(sent time.Duration, err error) { c.refused(s, sent, err) },
		Failed:  c.refresh,
	}, cfg)
	c.nodes[addr] = s
	return s
}

// assess refreshes the slot table after a failure that is not a redirection.
func (c *Cluster) assess(err error) {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case wire.OutcomeOf(err) == wire.Unsent, wire.OutcomeOf(err) == wire.Unknown, wire.HasCode(err, "CLUSTERDOWN", "READONLY", "NOREPLICAS"):
		c.refresh()
	}
}

// refused follows a redirection and records denials. If MOVED names a server that has denied the slot, the connections
// to its address may lead to a former server. The slot then moves there only with new connections.
func (c *Cluster) refused(from *wire.Server, sent time.Duration, err error) {
	moved, asks := wire.HasCode(err, "MOVED"), wire.HasCode(err, "ASK")
	if wire.HasCode(err, "CLUSTERDOWN") {
		c.deny(denial{from, everySlot}, sent)
	}
	if !moved && !asks {
		return
	}
	slot, addr, odd := redirection(from.Address(), err)
	switch {
	case asks && odd == nil && addr == from.Address():
		from.Replace(sent)
	case asks:
	case odd != nil:
		c.refresh()
	default:
		c.deny(denial{from, slot}, sent)
		if c.mayServe(addr, slot) {
			c.mu.Lock()
			if !c.closed {
				c.change(slot, c.node(addr))
			}
			c.mu.Unlock()
		}
		c.refresh()
	}
}

// followSlots handles the failed renewals of a batch. If a key has already moved to another node (ASK), it sends the
// renewal there. Other failures refresh the slot table.
func (c *Cluster) followSlots(ctx context.Context, from *wire.Server, requests []wire.Request, answers []wire.Answer) {
	targets := map[string][]int{}
	for i, a := range answers {
		c.assess(a.Err)
		answers[i].Err = wire.Redirected(a.Err)
		if !wire.HasCode(a.Err, "ASK") || requests[i].Asking {
			continue
		}
		if _, addr, err := redirection(from.Address(), a.Err); err == nil && addr != from.Address() {
			targets[addr] = append(targets[addr], i)
		}
	}
	c.report()
	for addr, indexes := range targets {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return
		}
		s := c.node(addr)
		c.mu.Unlock()
		var asking []wire.Request
		for _, i := range indexes {
			r := requests[i].WithSource()
			r.Asking = true
			asking = append(asking, r)
		}
		for n, a := range s.Renewals("").Send(ctx, asking) {
			a.Err = wire.Redirected(a.Err)
			answers[indexes[n]] = a
		}
	}
}
