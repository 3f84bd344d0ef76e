package wire

import (
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// connections are the connections of a Server.
type connections struct {
	cfg      Config
	calls    *conn.Line
	renewals *conn.Line
	large    *conn.Line  // for requests with large answers
	idle     *time.Timer // closes the connection of large after largeIdle
	messages *Subscription

	mu         sync.Mutex
	replacedAt time.Duration // time of the last Replace, or 0
	pause      time.Duration // pause before the next Replace
}

const (
	// largeIdle is how long the connection for large answers is kept after its last use.
	largeIdle = 10 * time.Second

	// minReplacePause and maxReplacePause bound the pause between two replacements by Replace.
	minReplacePause = 100 * time.Millisecond
	maxReplacePause = time.Second
)

func (c *connections) lines() []*conn.Line { return []*conn.Line{c.calls, c.renewals, c.large} }

// retire takes the connections for requests out of use, if they were made until a time.
func (c *connections) retire(end time.Duration) {
	for _, l := range c.lines() {
		l.Retire(end)
	}
}

// Replace replaces the connections that were made until a time, because the address may lead to another server now.
// That may not help, so the pauses between replacements grow. During a pause, Replace returns false and does nothing.
func (c *connections) Replace(end time.Duration) bool {
	now := c.calls.Now()
	c.mu.Lock()
	since, replaced := now-c.replacedAt, c.replacedAt > 0
	switch {
	case replaced && end < c.replacedAt:
		c.mu.Unlock()
		return true
	case replaced && since < c.pause:
		c.mu.Unlock()
		return false
	case since > 2*maxReplacePause:
		c.pause = 0
	}
	c.replacedAt, c.pause = max(1, now), min(max(minReplacePause, 2*c.pause), maxReplacePause)
	c.mu.Unlock()
	c.retire(end)
	c.messages.demoted()
	return true
}

// Replaced returns the time of the last Replace, or 0.
func (c *connections) Replaced() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replacedAt
}

// areElsewhere reports whether a connection leads to a server with another address.
func (c *connections) areElsewhere(addr string) bool {
	return c.messages.isElsewhere(addr) || slices.ContainsFunc(c.lines(), func(l *conn.Line) bool { return l.IsElsewhere(addr) })
}

// moveTo moves all connections to the primary at an address. Config.Moved then checks what the former one has granted.
func (c *connections) moveTo(addr string) {
	c.cfg.Logger.Info("primary changed", "address", addr)
	for _, l := range c.lines() {
		l.MoveTo(addr)
	}
	if c.messages.isElsewhere(addr) {
		c.messages.demoted()
	}
	c.cfg.Moved()
}

func (c *connections) close() {
	c.messages.close()
	c.idle.Stop()
	for _, l := range c.lines() {
		l.Close()
	}
}
