package lockcore

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// receive takes one message to this process. Anybody may forge one, so each only makes an
// attempt look, or leave what this process does not want.
func (c *Client) receive(payload string) {
	kind, rest, _ := strings.Cut(payload, " ")
	switch kind {
	case "g":
		name, value, _ := strings.Cut(rest, " ")
		c.granted(name, value)
	case "h":
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 {
			return
		}
		left, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return
		}
		c.headed(fields[2], time.Duration(left)*time.Millisecond)
	}
}

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

const (
	// leastSilence is the least time after which a silent subscription is pinged. While
	// somebody waits in line that comes once in silentTTLs TTLs: waiters look once per
	// 1.1 TTL, and many idle ones must not cost more than one command per TTL, see
	// leaderLooks. A connection that is dead meanwhile is found by TCP's own probes. If
	// those are answered and nothing else is, a waiter that then gets a lock without a
	// message has the subscription tested at once: until then a waiter is slow by as
	// much as a look is late.
	leastSilence = 10 * time.Second
	silentTTLs   = 60
)

// silence is how long the subscription may be silent before it is pinged. TCP's own
// probes find a broken network sooner; a ping finds a server, or what stands before it,
// that only acknowledges.
func (c *Client) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	shortest := time.Duration(0)
	for _, a := range c.waiting {
		if a.wake != nil && (shortest == 0 || a.terms.ttl < shortest) {
			shortest = a.terms.ttl
		}
	}
	return max(leastSilence, silentTTLs*shortest)
}
