package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A connection is a connection to the server. It is made when it is needed, and made again
// after a failure. One request, one batch or one subscription uses it at a time. A request
// ends when its context ends. The connection is then closed.
//
// A separate goroutine dials and sets up the connection, because the request that needs it
// may have little time. A connection that is ready too late serves the next request.
type connection struct {
	dials    *dialer
	trust    *trust
	role     role
	history  *history // checked by each new connection; nil: not
	replaced func()   // called when a connection has replaced an earlier one; may be nil
	prepared func()   // called when the connection was set up; may be nil

	alarm alarm

	// Only the present user writes these.
	failed bool          // the last request had no connection
	rest   time.Duration // until then, none is made unless it is needed
	left   time.Duration // when mayLeave last returned true
	single [1]Request    // of the present exchange

	mu      sync.Mutex
	link    *link // nil: the connection is not set up
	made    int   // how many connections were closed; a setup from before does not count
	closed  bool
	dialed  time.Duration // when the setup of this connection began
	proved  time.Duration // when the server last answered on this connection
	setting int           // setups that have not ended
	changed chan struct{} // closed when one of them ends
}

// newConnections makes connections for one purpose, which share a trust.
func newConnections(n int, opt redis.Options, r role, h *history) []*connection {
	t := &trust{began: time.Now()}
	all := make([]*connection, n)
	for i := range all {
		all[i] = newConnection(opt, t, r, h)
	}
	return all
}

func newConnection(opt redis.Options, t *trust, r role, h *history) *connection {
	return &connection{dials: newDialer(opt, r, h), trust: t, role: r, history: h, changed: make(chan struct{})}
}

// do sends commands in one round trip and waits for their answers until d ends. When the
// connection is ready, it omits the commands for which refusal returns an error.
func (c *connection) do(d *deadline, commands []Request, refusal func(i int) error) []Answer {
	l, err := c.connected(d)
	if err != nil {
		c.failed, c.rest = true, c.trust.now()+restAfter
		return unsent(len(commands), err)
	}
	c.failed = false
	if refusal == nil {
		return c.exchange(d, l, commands)
	}
	var replies []Answer // nil: nothing was refused
	for i := range commands {
		if err := refusal(i); err != nil {
			if replies == nil {
				replies = make([]Answer, len(commands))
			}
			replies[i].Err = err
		}
	}
	if replies == nil {
		return c.exchange(d, l, commands)
	}
	var sent []Request
	var at []int
	for i, r := range commands {
		if replies[i].Err == nil {
			sent, at = append(sent, r), append(at, i)
		}
	}
	if len(sent) > 0 {
		for i, r := range c.exchange(d, l, sent) {
			replies[at[i]] = r
		}
	}
	return replies
}

var errDropped = errors.New("lockcore: the caller has dropped the call")

// exchange sends commands on a connection that is set up.
func (c *connection) exchange(d *deadline, l *link, commands []Request) []Answer {
	if !d.exchange(true) {
		return unsent(len(commands), d.why())
	}
	sent := c.trust.now()
	if d.waited || commands[0].count != nil {
		endWaits(commands)
	}
	replies := c.transmit(d, l, commands)
	l.used = c.trust.now()
	d.exchange(false)
	c.assess(l, sent, replies)
	return replies
}

// unsent returns the answers to commands that were not sent.
func unsent(n int, err error) []Answer {
	replies := make([]Answer, n)
	for i := range replies {
		replies[i].Err = &unsentError{err}
	}
	return replies
}

// connected waits until the connection is set up, for the request of d. If it is doubted, or not fresh, it is
// replaced first.
func (c *connection) connected(d *deadline) (*link, error) {
	c.mu.Lock()
	l, usable, closed := c.link, c.usableLocked(), c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, net.ErrClosed
	case usable && l.fresh(c.trust.now()):
		return l, nil
	case usable:
		c.drop(l)
	}
	l, err := c.connect(d)
	d.nextPart()
	return l, err
}

// restAfter is how long a connection that could not be made is not tried again while others work.
const restAfter = 100 * time.Millisecond

// rests reports whether the connection could not be made a moment ago.
func (c *connection) rests() bool { return c.failed && c.trust.now() < c.rest }

// usable reports whether a request need not wait for the connection.
func (c *connection) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.usableLocked()
}

func (c *connection) usableLocked() bool {
	return c.link != nil && !c.link.outdated.Load() && !c.trust.doubts(c.dialed, c.proved)
}

// isSetUp reports whether there is a connection, which may be doubted.
func (c *connection) isSetUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil && !c.closed
}

// dialing reports whether a dial or a setup has not returned.
func (c *connection) dialing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setting > 0 || c.dials.runs()
}

// setUp makes a connection ready, unless it was closed since, or reports why it could not.
func (c *connection) setUp(made int, result chan<- error) {
	began := c.trust.now()
	l, err := c.dials.connect(context.Background())
	c.mu.Lock()
	c.setting--
	unwanted := l
	if err == nil && c.link == nil && c.made == made && !c.closed {
		if c.proved > 0 && c.replaced != nil {
			go c.replaced() // it only wakes others
		}
		c.dialed, c.proved = began, c.trust.now()
		c.link, unwanted = l, nil
		l.checked, l.used = c.proved, c.proved
		if c.prepared != nil {
			go c.prepared() // close waits for the calls that it sends
		}
	}
	result <- err
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if unwanted != nil {
		unwanted.close()
	}
}

// prepare begins to set up a connection that is not usable, in the background, unless so many
// setups have not ended: the connection outlives the request that began it. The result is nil
// then, and is otherwise what gets the error.
func (c *connection) prepare(limit int) (setup chan error) {
	finish := func() {}
	c.mu.Lock()
	if c.link != nil && !c.usableLocked() {
		finish = c.replaceLocked()
	}
	if c.link == nil && !c.closed && c.setting < limit {
		setup = make(chan error, 1)
		c.setting++
		go c.setUp(c.made, setup) // close makes its dial and its requests fail, and does not wait
	}
	c.mu.Unlock()
	finish()
	return setup
}

// connect sets up the connection, or waits until that is done.
func (c *connection) connect(d *deadline) (*link, error) {
	own := c.prepare(maxDialing)
	for {
		c.mu.Lock()
		if c.link != nil || c.closed {
			defer c.mu.Unlock()
			if c.closed {
				return nil, net.ErrClosed
			}
			return c.link, nil
		}
		changed := c.changed
		c.mu.Unlock()
		if own == nil {
			own = c.prepare(maxDialing)
		}
		select {
		case err := <-own:
			if err != nil && !c.isSetUp() {
				return nil, err
			}
			own = nil // the connection may have been closed since
		case <-changed:
		case <-d.Done():
			if own == nil {
				return nil, errors.Join(d.why(), errDialsHang)
			}
			return nil, c.dials.late(d.why())
		}
	}
}

// await is connect until ctx ends. The setup goes on after that.
func (c *connection) await(ctx context.Context) error {
	d := c.limit(ctx, 0)
	defer d.stop()
	_, err := c.connect(d) //nolint:contextcheck // d is a context of ctx
	return err
}

// assess records what the answers say about the connection.
func (c *connection) assess(l *link, sent time.Duration, replies []Answer) {
	c.failed = false
	for _, r := range replies {
		switch {
		case r.Err == nil:
			c.prove()
		case IsUnsent(r.Err):
			c.failed = true
			c.drop(l)
			return
		case IsRefused(r.Err):
			c.prove()
			switch { // the address may lead to the new primary
			case c.role.isReplica(r.Err):
				c.abandon()
				return
			case c.role.isCutOff(r.Err) && c.leave():
				return
			}
		default:
			var late *noAnswerError
			if c.failed = !errors.As(r.Err, &late); !c.failed {
				c.trust.suspect(sent)
			}
			c.drop(l) // the answer may still come
			return
		}
	}
}

// leaveAfter is the shortest time between two replacements of a connection to a server that
// misses replicas. If this server is still the primary, they help nothing.
const leaveAfter = time.Second

// leave abandons the connection. It returns false if it did so too short a time ago.
func (c *connection) leave() bool {
	now := c.trust.now()
	if c.left > 0 && now-c.left < leaveAfter {
		return false
	}
	c.left = max(1, now)
	c.abandon()
	return true
}

// abandon replaces the connection, and the others before their next use: they are to the same
// server.
func (c *connection) abandon() {
	c.trust.abandon(c.trust.now())
	c.renew()
}

// prove records that the server has just answered.
func (c *connection) prove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proved = c.trust.now()
}

// drop closes a connection unless it was replaced.
func (c *connection) drop(l *link) {
	finish := func() {}
	c.mu.Lock()
	if c.link == l {
		finish = c.replaceLocked()
	}
	c.mu.Unlock()
	finish()
}

// renew closes the connection; the next request makes another.
func (c *connection) renew() { c.replace()() }

// replace makes the next request use another connection. finish closes the present one.
func (c *connection) replace() (finish func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaceLocked()
}

func (c *connection) replaceLocked() (finish func()) {
	l := c.link
	c.link = nil
	c.made++
	return func() {
		if l != nil {
			l.close()
		}
	}
}

// strays reports whether the connection is set up, to a server at another address.
func (c *connection) strays(from string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil && c.link.addr != from
}

// follow closes the connection unless it is set up to this address. A request on it fails: the
// answer of another server does not count.
func (c *connection) follow(to string) {
	c.mu.Lock()
	stays := c.link != nil && c.link.addr == to
	c.mu.Unlock()
	if !stays {
		c.renew()
	}
}

// close ends the present request and prevents others.
func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	finish := c.replaceLocked()
	c.mu.Unlock()
	c.dials.close()
	finish()
}
