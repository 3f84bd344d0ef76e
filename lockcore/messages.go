package lockcore

import (
	"context"
	"time"
)

// granted hears that the lock was handed to an attempt of ours.
func (c *Client) granted(name, value string) {
	p, ok := parseAttempt(value)
	if !ok || p.process != c.process || checkName("name", name) != nil {
		return
	}
	c.mu.Lock()
	a, held := c.waiting[p.number], c.leases[p.number] != nil
	_, open := c.unburied[p.number]
	c.mu.Unlock()
	switch {
	case held:
	case a != nil:
		a.grantedAt.CompareAndSwap(0, int64(c.clock.Now())+1)
		a.lookNow()
	default:
		// Nobody here wants it any more: its leaving was lost. Leave again.
		c.metrics.lapsed.Inc()
		select {
		case c.strays <- struct{}{}:
		default:
			return // too many at once: the grant ends by itself
		}
		// Whether a runner's or a user's it was is not known. Tokens may be kept for too long.
		terms := &leaseTerms{ttl: defaultTTL, keepTokens: max(c.tokenRetention, runnersTokenRetention)}
		stray := &attempt{c: c, kind: p.kind, keys: c.keys.lock(name), terms: terms, number: p.number, value: value}
		stray.open.Store(open)
		if !c.background(func(ctx context.Context) {
			defer func() { <-c.strays }()
			c.takeBack(ctx, stray)
		}) {
			<-c.strays
		}
	}
}

// headed hears that an attempt of ours is the head of its line, and when the
// lock ends by itself.
func (c *Client) headed(value string, left time.Duration) {
	p, ok := parseAttempt(value)
	if !ok || p.process != c.process || left <= 0 {
		return
	}
	c.mu.Lock()
	a := c.waiting[p.number]
	c.mu.Unlock()
	if a != nil && a.wake != nil {
		a.left.Store(int64(left))
		a.nudge()
	}
}

// wakeAll makes every waiter look: messages may have been missed.
func (c *Client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.waiting {
		a.lookNow()
	}
}

func (a *attempt) lookNow() {
	if a.wake != nil {
		a.look.Store(true)
		a.nudge()
	}
}

func (a *attempt) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
