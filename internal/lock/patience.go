package lock

import (
	"maps"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
)

const (
	// sayAfter is how long a call of Lock waits before a line says who holds the lock. It doubles with each line.
	sayAfter = 3 * time.Second

	// A Client says something at most once in sayEvery, and about sayNames names in that time.
	sayEvery, sayNames = 30 * time.Second, 10
)

// A patience is that of one call of Lock. It says why the call waits.
type patience struct {
	*Name
	requests readiness.State
	pause    time.Duration // 0: it says nothing
	timer    <-chan time.Time
	due      bool // the next answer is to be said
}

// answered reports failures of requests.
func (p *patience) answered(err error) {
	if err != nil {
		p.requests.Failed(p.c.waits, p.c.log.WithValues("name", p.keys.name), err, IsTemporary(err))
	} else {
		p.requests.Works(0)
	}
}

// late returns a channel that receives when over must be called. The time begins with the first call.
func (p *patience) late() <-chan time.Time {
	if p.timer == nil && p.pause > 0 {
		p.timer = time.After(p.pause)
	}
	return p.timer
}

// over reports whether it is time to say who holds the lock.
func (p *patience) over() bool {
	p.pause, p.timer = 2*p.pause, nil
	if !p.c.maySay(p.keys.name) {
		return false
	}
	p.due = true
	return true
}

// maySay reports whether a line about a name, its size, or withdrawals ("") is due.
func (c *Client) maySay(what string) bool {
	now := c.clock.Ticks()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.said, func(_ string, at time.Duration) bool { return now-at >= sayEvery })
	if _, lately := c.said[what]; lately || len(c.said) >= sayNames {
		return false
	}
	c.said[what] = now
	return true
}

// say says who holds the lock, as a new answer of the server says.
func (p *patience) say(r acquireReply) {
	p.due = false
	held := p.heldBy(&r)
	p.c.log.Info("waiting for a lock", "name", held.Name, "holder", held.Holder, "owner", held.Owner, "ttl", held.TTL)
}
