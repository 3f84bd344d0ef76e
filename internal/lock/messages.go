package lock

import (
	"strconv"
	"strings"
	"time"
)

// receive handles one message to this process. part_queue.lua and part_note.lua send them. Messages may be forged. So
// a message only makes an attempt send a check, or withdraws an attempt without a waiting call.
func (c *Client) receive(payload string) {
	kind, rest, _ := strings.Cut(payload, " ")
	switch kind {
	case "g": // grant
		lock, value, _ := strings.Cut(rest, " ")
		if name, ok := c.keys.nameOf(lock); ok {
			c.handleGrant(name, value)
		}
	case "h": // head of the queue
		fields := strings.SplitN(rest, " ", 3)
		if len(fields) != 3 {
			return
		}
		left, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return
		}
		c.handleHead(fields[2], time.Duration(left)*time.Millisecond)
	case "l": // call of a process that may be frozen
		lock, value, _ := strings.Cut(rest, " ")
		if name, ok := c.keys.nameOf(lock); ok {
			c.handleCall(name, value)
		}
	}
}

// handleGrant handles the message that an attempt of this Client was granted the lock.
func (c *Client) handleGrant(name, value string) {
	v, ok := ReadValue(value)
	if !ok || v.process != c.process || CheckName("name", name) != nil {
		return
	}
	c.mu.Lock()
	a, held := c.waiting[v.number], c.leases[v.number] != nil
	_, unanswered := c.pendingTombs[v.number]
	c.mu.Unlock()
	switch {
	case held:
	case a != nil:
		a.notifiedAt.CompareAndSwap(0, int64(c.clock.Now())+1) // never 0
		a.checkNow()
	default:
		c.metrics.lapsed.Inc()
		c.withdrawUnwanted(name, value, v, unanswered)
		c.wakeAll(name) // if the grant has lapsed, the server has dropped all waiters of this process
	}
}

// handleHead handles the message that an attempt of this Client is the head of its queue,
// and that the lock expires after left unless it is renewed.
func (c *Client) handleHead(value string, left time.Duration) {
	if a, ok := c.waitingFor(value); ok && left > 0 && a != nil && a.wake != nil {
		if before := a.lockEndsIn.Swap(int64(left)); before > 0 && before < int64(left) {
			a.lockEndsIn.Store(before) // a longer time may be forged, and must not delay the check
		}
		a.wake.Send()
	}
}

// handleCall handles the message that asks whether this process is frozen: the attempt in the message sends a check.
// If this attempt no longer waits, all waiters of the name send one.
func (c *Client) handleCall(name, value string) {
	switch a, ok := c.waitingFor(value); {
	case !ok:
	case a != nil:
		a.checkNow()
	default:
		c.wakeAll(name)
	}
}

// waitingFor returns the waiting attempt with a value, or nil. ok is false for a value of another process.
func (c *Client) waitingFor(value string) (a *Attempt, ok bool) {
	v, ok := ReadValue(value)
	if !ok || v.process != c.process {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting[v.number], true
}

// wakeAll makes the waiters of a name send a check, or all waiters if name is "". It is called when messages may have
// been missed, or entries in the queue may be lost.
func (c *Client) wakeAll(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := int64(c.clock.Now())
	for _, a := range c.waiting {
		if name == "" || a.keys.name == name {
			a.allCheckedAt.Store(now)
			a.checkNow()
		}
	}
}

// wakeOthers makes the other waiters of the name send a check, unless wakeAll was called since t0. The answer to a
// request of t0 has shown that the attempt is not in the queue: the server took this process for dead, or lost the
// queue. So the other waiters are not in the queue either.
func (a *Attempt) wakeOthers(t0 time.Duration) {
	if time.Duration(a.allCheckedAt.Load()) <= t0 {
		a.c.wakeAll(a.keys.name)
		a.checkDue.Store(false) // the caller sends a request for this attempt
	}
}

func (a *Attempt) checkNow() {
	if a.wake != nil {
		a.checkDue.Store(true)
		a.wake.Send()
	}
}
