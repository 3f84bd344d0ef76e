package lock

import (
	"strconv"
	"strings"
	"time"
)

// receive handles one message to this process. Messages may be forged. So a message only
// makes an attempt look, or withdraws an attempt that this process does not wait for.
func (c *Client) receive(payload string) {
	kind, rest, _ := strings.Cut(payload, " ")
	switch kind {
	case "g":
		lock, value, _ := strings.Cut(rest, " ")
		if name, ok := c.keys.nameOf(lock); ok {
			c.handleGrant(name, value)
		}
	case "h":
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 {
			return
		}
		left, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return
		}
		c.handleHead(fields[2], time.Duration(left)*time.Millisecond)
	case "l":
		lock, value, _ := strings.Cut(rest, " ")
		if name, ok := c.keys.nameOf(lock); ok {
			c.handleCall(name, value)
		}
	}
}

// handleGrant handles the message that an attempt of this Client was granted the lock.
func (c *Client) handleGrant(name, value string) {
	p, ok := ReadValue(value)
	if !ok || p.process != c.process || CheckName("name", name) != nil {
		return
	}
	c.mu.Lock()
	a, held := c.waiting[p.number], c.leases[p.number] != nil
	_, unanswered := c.pendingTombs[p.number]
	c.mu.Unlock()
	switch {
	case held:
	case a != nil:
		a.grantedAt.CompareAndSwap(0, int64(c.clock.Now())+1)
		a.lookNow()
	default:
		c.metrics.lapsed.Inc()
		c.withdrawUnwanted(name, value, p, unanswered)
	}
}

// handleHead handles the message that an attempt of this Client is the head of its queue,
// and that the lock expires after left unless it is renewed.
func (c *Client) handleHead(value string, left time.Duration) {
	p, ok := ReadValue(value)
	if !ok || p.process != c.process || left <= 0 {
		return
	}
	c.mu.Lock()
	a := c.waiting[p.number]
	c.mu.Unlock()
	if a != nil && a.wake != nil {
		if before := a.endsIn.Swap(int64(left)); before > 0 && before < int64(left) {
			a.endsIn.Store(before) // it may be forged, and must not delay the look
		}
		a.nudge()
	}
}

// handleCall handles the message that asks whether this process is frozen. One of its attempts
// looks: the named one if it still waits, otherwise another one of that lock.
func (c *Client) handleCall(name, value string) {
	p, ok := ReadValue(value)
	if !ok || p.process != c.process {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.waiting[p.number]; a != nil {
		a.lookNow()
		return
	}
	for _, a := range c.waiting {
		if a.keys.name == name && a.wake != nil {
			a.lookNow()
			return
		}
	}
}

// wakeAll makes every waiter look. It is called when messages may have been missed.
func (c *Client) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.waiting {
		a.lookNow()
	}
}

func (a *Attempt) lookNow() {
	if a.wake != nil {
		a.look.Store(true)
		a.nudge()
	}
}

func (a *Attempt) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

const (
	// A silent subscription is pinged after minSilence. While calls wait, it is pinged
	// after silentTTLs times the shortest TTL, if that is longer. Each waiter already looks
	// once per 1.1 TTL, and an idle waiter must not cost more than one command per TTL. TCP keepalive finds
	// a dead connection sooner. If only keepalive still works, waiters miss messages and
	// acquire a lock at their next look. The first such waiter starts a self-test.
	minSilence = 10 * time.Second
	silentTTLs = 60
)

// silence returns how long the subscription may be silent before it is pinged. TCP
// keepalive finds a broken network sooner. The ping finds a server or proxy that keeps the
// connection open and does nothing else.
func (c *Client) silence() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	shortest := time.Duration(0)
	for _, a := range c.waiting {
		if a.wake != nil && (shortest == 0 || a.terms.ttl < shortest) {
			shortest = a.terms.ttl
		}
	}
	return max(minSilence, silentTTLs*shortest)
}
