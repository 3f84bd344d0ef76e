// Package cluster makes one Wire of the servers of a Redis Cluster. It finds the server of a name, and follows names
// that move. Package wire handles the failures of one server.
//
// It guarantees that a request is applied at most once while slots move. If the slot of the name has moved before the
// answer arrives, the answer is ignored: the caller gets ErrUnknown. It does not guarantee that a request succeeds
// while its slot moves: a script is then refused. Renewals follow their keys.
//
//	a slot moves                     its names are at another server, and Config.Relocated is called
//	a request, a dial or a           the slot table is refreshed
//	subscription fails
//	a server refuses a slot that     its address may lead to another machine, so its connections are replaced, after
//	the slot table gives it         pauses that grow
package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Cluster is the Wire of a Redis Cluster. Each primary is a server with its own connections, renewals and
// subscription. So a primary that does not answer delays only its own names.
//
// docs/ARCHITECTURE.md, "In a cluster", says when the slot table changes. A refresh without an answer does not change
// it, and the next failure causes another refresh.
type Cluster struct {
	cfg      wire.Config
	opt      redis.Options // options of each node, without an address
	seeds    []string
	surveyor *surveyor
	uses     uses

	ctx  context.Context // context of the goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	nodes        map[string]*wire.Server  // primaries with slots, by address
	replicas     map[string]string        // address of the primary, by the address of the replica
	owners       [slots]*wire.Server      // server of each slot: the slot table
	denials      map[denial]time.Duration // times when the denied requests were sent
	moved        bool                     // a slot has moved since the last refresh
	relocated    map[int]bool             // slots that have moved since the last call of Config.Relocated
	refreshing   bool
	refreshAgain bool // a refresh was requested during the current one
	pauses       retry.Backoff
	refreshed    chan struct{} // closed at the end of the current or next refresh
	failure      error         // error of the last refresh
}

// New returns the Wire of the cluster of these seeds, the addresses of some nodes. Each node has the options.
// Each channel of cfg must contain the hash tag of its name. Failed is not called for the answer MOVED.
func New(opt redis.Options, seeds []string, cfg wire.Config) *Cluster {
	c := &Cluster{
		cfg: cfg, opt: opt, seeds: seeds,
		surveyor: &surveyor{opt: opt}, uses: uses{all: map[*use]struct{}{}}, nodes: map[string]*wire.Server{},
		denials: map[denial]time.Duration{}, relocated: map[int]bool{},
		pauses: retry.Pauses(100*time.Millisecond, time.Second), refreshed: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends all connections and goroutines.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = map[string]*wire.Server{}
	c.mu.Unlock()
	c.stop()
	for _, s := range nodes {
		c.wg.Go(s.Close)
	}
	c.wg.Wait()
	c.surveyor.close()
}

func (c *Cluster) owner(slot int) *wire.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[slot]
}

// tag returns a hash tag in the lowest slot of a server, or false if the server has no slot.
func (c *Cluster) tag(s *wire.Server) (string, bool) {
	c.mu.Lock()
	slot := slices.Index(c.owners[:], s)
	c.mu.Unlock()
	if slot < 0 {
		return "", false
	}
	return tagOf(slot), true
}

// change makes s the server of a slot. The caller holds mu.
func (c *Cluster) change(slot int, s *wire.Server) {
	former := c.owners[slot]
	if former == s {
		return
	}
	c.owners[slot], c.moved = s, true
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

// A denial is a server's answer that it does not serve a slot. It is kept until the slot has another server, or the
// connections of that time are replaced.
type denial struct {
	by   *wire.Server
	slot int
}

// everySlot is the slot in a denial by a server that is cut off from the cluster: it serves none.
const everySlot = -1

func (c *Cluster) deny(d denial, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials[d] = sent
}

// mayServe reports whether the server at an address may have a slot. After a denial, it first
// replaces the connections, because the address may lead to another server now. It returns false if that must wait.
func (c *Cluster) mayServe(addr string, slot int) bool {
	c.mu.Lock()
	s := c.nodes[addr]
	denied, ok := c.denials[denial{s, slot}]
	c.mu.Unlock()
	return !ok || c.replace(s, denied)
}

// replace replaces the connections of a denial, unless wire.Server.Replace pauses.
func (c *Cluster) replace(s *wire.Server, denied time.Duration) bool {
	if !s.Replace(denied) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.denials, func(d denial, _ time.Duration) bool { return d.by == s })
	return true
}

// disputed returns the servers that have denied a slot which they have in the table, with the times of the denials. It
// deletes settled denials: the server was replaced, or the table gives the slot to another server. ok means that the
// cluster serves requests. The caller holds mu.
func (c *Cluster) disputed(ok bool) map[*wire.Server]time.Duration {
	disputed := map[*wire.Server]time.Duration{}
	for d, sent := range c.denials {
		owner := d.by
		if d.slot != everySlot {
			owner = c.owners[d.slot]
		}
		_, denied := c.denials[denial{owner, d.slot}]
		switch {
		case c.nodes[d.by.Address()] != d.by, d.slot == everySlot && !ok, !denied:
			delete(c.denials, d)
		case owner == d.by:
			disputed[owner] = max(disputed[owner], sent)
		}
	}
	return disputed
}

// uses are the callers of Start and Watch for all names.
type uses struct {
	mu  sync.Mutex // attach is called under it, and does not block
	all map[*use]struct{}
}

// A use is one caller of Start or Watch. It continues at the new server when its slot moves.
type use struct {
	slot   int
	attach func(s *wire.Subscription) (stop func())
	server *wire.Server // nil until the server is known
	stop   func()
}

// use begins a use at the current server of a slot. known reports whether there is one.
func (c *Cluster) use(slot int, attach func(s *wire.Subscription) (stop func())) (stop func(), known bool) {
	c.uses.mu.Lock()
	defer c.uses.mu.Unlock()
	one := &use{slot: slot, attach: attach, stop: func() {}}
	c.uses.all[one] = struct{}{}
	one.move(c.owner(slot))
	return func() {
		c.uses.mu.Lock()
		defer c.uses.mu.Unlock()
		delete(c.uses.all, one)
		one.stop()
	}, one.server != nil
}

func (u *use) move(to *wire.Server) {
	if to == nil || to == u.server {
		return
	}
	u.stop()
	u.server, u.stop = to, u.attach(to.Subscription())
}

// move moves all uses to the current servers of their slots.
func (u *uses) move(owner func(slot int) *wire.Server) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for one := range u.all {
		one.move(owner(one.slot))
	}
}
