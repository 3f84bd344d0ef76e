package cluster

import (
	"maps"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A denial is a server's answer that it does not serve a slot. Its value is when the request was sent, as in
// wire.Node.Refused. It is kept until the slot has another server, or the connections of that time are replaced.
type denial struct {
	by   *wire.Server
	slot int // everySlot: the server is cut off from the cluster
}

const everySlot = -1

// refused follows a redirection, and records denials. A server that denies a slot which another answer gives it may be
// a former one, that still has the connections to its address. That slot only moves there with new connections.
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

func (c *Cluster) deny(d denial, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials[d] = sent
}

// mayServe reports whether the server at an address may have a slot: it has not denied it on its present connections.
func (c *Cluster) mayServe(addr string, slot int) bool {
	c.mu.Lock()
	s := c.nodes[addr]
	denied, ok := c.denials[denial{s, slot}]
	c.mu.Unlock()
	return !ok || c.replace(s, denied)
}

// replace replaces the connections of a denial, unless it is too early, see wire.Server.Replace.
func (c *Cluster) replace(s *wire.Server, denied time.Duration) bool {
	if !s.Replace(denied) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.denials, func(d denial, _ time.Duration) bool { return d.by == s })
	return true
}

// doubted returns the servers that deny what they have in the table, with the times, and forgets the denials that the
// table confirms. ok: the cluster serves requests. The caller holds mu.
func (c *Cluster) doubted(ok bool) map[*wire.Server]time.Duration {
	doubted := map[*wire.Server]time.Duration{}
	for d, sent := range c.denials {
		owner := d.by
		if d.slot != everySlot {
			owner = c.owners[d.slot]
		}
		_, disputed := c.denials[denial{owner, d.slot}]
		switch {
		case c.nodes[d.by.Address()] != d.by, d.slot == everySlot && !ok, !disputed:
			delete(c.denials, d)
		case owner == d.by:
			doubted[owner] = max(doubted[owner], sent)
		}
	}
	return doubted
}
