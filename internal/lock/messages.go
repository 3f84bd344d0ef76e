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
		c.wakeAll(name) // if the grant has lapsed, they have lost their places
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

// handleCall handles the message that asks whether this process is frozen. The named attempt looks. If it has left,
// all others of that lock do.
func (c *Client) handleCall(name, value string) {
	p, ok := ReadValue(value)
	if !ok || p.process != c.process {
		return
	}
	c.mu.Lock()
	a := c.waiting[p.number]
	c.mu.Unlock()
	if a != nil {
		a.lookNow()
	} else {
		c.wakeAll(name)
	}
}

// wakeAll makes every waiter of a name look, or with "" every waiter. It is called when messages may have been
// missed, or places in the queue may be lost.
func (c *Client) wakeAll(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := int64(c.clock.Now())
	for _, a := range c.waiting {
		if name == "" || a.keys.name == name {
			a.wokenAt.Store(now)
			a.lookNow()
		}
	}
}

// rejoins is called before an attempt joins the queue again that has lost its place, as a request shows that was sent at
// t0. The server may have taken this process for dead, or has lost the queue. So the other waiters of the name may have
// lost their places, too. They look, unless they were woken since t0.
func (a *Attempt) rejoins(t0 time.Duration) {
	if time.Duration(a.wokenAt.Load()) <= t0 {
		a.c.wakeAll(a.keys.name)
		a.look.Store(false) // its next request follows
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
