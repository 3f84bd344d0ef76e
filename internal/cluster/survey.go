package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// refresh starts a refresh of the slot table. During a refresh and the pause after it, the
// next one starts after that pause.
func (c *Cluster) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.refreshing:
		c.again = true
	default:
		c.refreshing = true
		c.wg.Go(c.run)
	}
}

func (c *Cluster) run() {
	for {
		found, err := c.survey()
		pause := c.install(found, err)
		retry.Sleep(c.ctx, pause, nil)
		c.mu.Lock()
		again := c.again && !c.closed
		c.again, c.refreshing = false, again
		c.mu.Unlock()
		if !again {
			return
		}
	}
}

// survey asks several nodes and returns the newest view.
func (c *Cluster) survey() (*view, error) {
	type result struct {
		view *view
		err  error
	}
	ctx, cancel := context.WithCancel(c.ctx)
	asked := c.someNodes()
	c.prepareSurvey(asked)
	results := make(chan result, len(asked))
	var all sync.WaitGroup
	for _, addr := range asked {
		all.Go(func() {
			v, err := c.view(ctx, addr)
			results <- result{v, err}
		})
	}
	defer all.Wait()
	defer cancel()
	var newest *view
	var failure error // a permanent one, if there is one
	var late <-chan time.Time
	for range asked {
		select {
		case r := <-results:
			switch {
			case r.err != nil && (failure == nil || wire.VerdictOf(r.err).Operator):
				failure = r.err
			case r.err != nil:
			case r.view.newerThan(newest):
				newest = r.view
			}
			if newest != nil && late == nil {
				late = time.After(viewsWithin)
			}
		case <-late:
			return newest, nil
		}
	}
	if newest == nil {
		return nil, failure
	}
	return newest, nil
}

// prepareSurvey makes a Dialer for each node to ask. A node that was asked last time keeps its own, whose
// dials may not have returned: as long as that lasts, the node costs a few dials.
func (c *Cluster) prepareSurvey(asked []string) {
	former := c.surveyors
	c.surveyors = map[string]*conn.Line{}
	for _, addr := range asked {
		d := former[addr]
		if delete(former, addr); d == nil {
			opt := c.opt
			opt.Addr = addr
			d = conn.NewLine(conn.Options{Redis: opt, Check: checkNode})
		}
		c.surveyors[addr] = d
	}
	for _, s := range former {
		s.Close()
	}
}

// view asks one node, on a connection of its own. A replica answers, too.
func (c *Cluster) view(ctx context.Context, addr string) (*view, error) {
	l := c.surveyors[addr]
	answers := l.All(ctx, []conn.Command{askSlots.Command, askInfo.Command}, viewWithin)
	l.Abandon(l.Now())
	return readView(addr, answers[0], answers[1])
}

// checkNode reads the answer to HELLO of a node, which may be a replica.
func checkNode(hello map[string]any) error {
	major, _, _ := strings.Cut(wire.Text(hello["version"]), ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return &conn.Refusal{Text: fmt.Sprintf("ERR the node has version %v; a cluster needs Redis 7.0 or later, for sharded messages", hello["version"])}
	}
	return nil
}

// someNodes returns addresses of nodes to ask, in random order: those that the user gave, which are
// right even if all addresses have changed, and then of primaries and their replicas.
func (c *Cluster) someNodes() []string {
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

// install makes a view the table. It returns the pause before the next refresh.
func (c *Cluster) install(found *view, err error) (pause time.Duration) {
	c.mu.Lock()
	c.failure = err
	var former []*wire.Server
	var doubted map[*wire.Server]time.Duration
	if err == nil && !c.closed {
		c.adopt(found)
		former = c.discard()
		doubted = c.doubted(found.ok)
	}
	changed := c.dirty
	c.dirty = false
	present := slices.Collect(maps.Values(c.nodes))
	if changed {
		c.pause.Reset()
	}
	pause = c.pause.NextBackOff()
	close(c.refreshed)
	c.refreshed = make(chan struct{})
	c.mu.Unlock()
	for s, denied := range doubted {
		c.replace(s, denied)
	}
	c.report()
	if changed {
		c.reattach()
		c.cfg.Missed("")
	}
	for _, s := range present {
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

// change makes s the server of a slot. The caller holds mu.
func (c *Cluster) change(slot int, s *wire.Server) {
	former := c.owners[slot]
	if former == s {
		return
	}
	c.owners[slot], c.dirty = s, true
	if former != nil {
		c.relocated[slot] = true
	}
}

// report calls Config.Relocated if slots have moved.
func (c *Cluster) report() {
	c.mu.Lock()
	changed := c.relocated
	c.relocated = map[int]bool{} // changed is read without mu
	c.mu.Unlock()
	if len(changed) > 0 {
		c.cfg.Relocated(func(name string) bool { return changed[slotOf(name)] })
	}
}

// discard removes the servers without slots and returns them. The caller holds mu.
func (c *Cluster) discard() (former []*wire.Server) {
	used := map[*wire.Server]bool{}
	for _, s := range c.owners {
		used[s] = true
	}
	for addr, s := range c.nodes {
		if !used[s] {
			delete(c.nodes, addr)
			former = append(former, s)
		}
	}
	return former
}
