package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A connection is a connection to the server. It is made when it is needed, and made again
// after a failure. One request, one batch or one subscription uses it at a time. A request
// ends when its context ends. go-redis ignores the context while it reads, so the connection
// is then closed.
//
// A separate goroutine dials and sets up the connection, because the request that needs it
// may have little time. A connection that is ready too late serves the next request.
type connection struct {
	opt      redis.Options
	dials    *dialer
	trust    *trust
	role     role
	history  *history // checked by each new connection; nil: not
	replaced func()   // called when a connection has replaced an earlier one; may be nil
	prepared func()   // called when the connection was set up; may be nil

	sealed atomic.Bool // go-redis must not dial now
	alarm  alarm

	// Only the present user writes these.
	failed bool          // the last request had no connection
	rest   time.Duration // until then, none is made unless it is needed
	batch  batch         // the commands of the present exchange
	left   time.Duration // when mayLeave last returned true

	mu      sync.Mutex
	rdb     *redis.Client
	at      *address // of the server of rdb
	closed  bool
	ready   bool          // rdb has a connection that is set up
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
	c := &connection{trust: t, role: r, history: h, changed: make(chan struct{})}
	c.dials = newDialer(opt)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.sealed.Load() {
			return nil, net.ErrClosed
		}
		return c.dials.take(ctx, network, addr)
	}
	guardSetup(&opt, c.dials.done)
	c.opt = opt
	c.rdb, c.at = c.client()
	return c
}

// An address is where the last connection of a go-redis client leads to; nil: it made none.
type address struct{ atomic.Pointer[string] }

// differs reports whether a connection was made, and not to that address.
func (a *address) differs(from string) bool {
	at := a.Load()
	return at != nil && *at != from
}

// remoteAddr returns where a connection leads to. The connection may be the user's.
func remoteAddr(conn net.Conn) string {
	if at := conn.RemoteAddr(); at != nil {
		return at.String()
	}
	return ""
}

// client returns a go-redis client for the one connection.
func (c *connection) client() (*redis.Client, *address) {
	opt := c.opt
	at := new(address)
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := c.opt.Dialer(ctx, network, addr)
		if err == nil {
			text := remoteAddr(conn)
			at.Store(&text)
		}
		return conn, err
	}
	if c.history != nil {
		opt.OnConnect = c.check
	}
	rdb := redis.NewClient(&opt)
	rdb.AddHook(greeting{authenticates: c.opt.OnConnect != nil, role: c.role})
	return rdb, at
}

// check is the OnConnect of a connection with a history.
func (c *connection) check(ctx context.Context, cn *redis.Conn) error {
	if c.opt.OnConnect != nil {
		if err := c.opt.OnConnect(ctx, cn); err != nil {
			return err
		}
	}
	if err := c.history.check(ctx, cn); err != nil {
		return err
	}
	if ctx.Value(grantingKey{}) != nil {
		return c.history.refusal() // go-redis dials again for a batch after do has examined it
	}
	return nil
}

// do sends commands in one round trip and waits for their answers until d ends. When the
// connection is ready, it omits the commands for which refusal returns an error.
func (c *connection) do(d *deadline, commands []Request, refusal func(i int) error) []Answer {
	rdb, err := c.connected(d)
	if err != nil {
		c.failed, c.rest = true, c.trust.now()+restAfter
		return unsent(len(commands), err)
	}
	c.failed = false
	if refusal == nil {
		return c.exchange(d, rdb, commands)
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
		return c.exchange(d, rdb, commands)
	}
	var sent []Request
	var at []int
	for i, r := range commands {
		if replies[i].Err == nil {
			sent, at = append(sent, r), append(at, i)
		}
	}
	if len(sent) > 0 {
		for i, r := range c.exchange(d, rdb, sent) {
			replies[at[i]] = r
		}
	}
	return replies
}

var errDropped = errors.New("lockcore: the caller has dropped the call")

// exchange sends commands on a connection that is set up.
func (c *connection) exchange(d *deadline, rdb *redis.Client, commands []Request) []Answer {
	if !d.exchange(true) {
		return unsent(len(commands), d.why())
	}
	sent := c.trust.now()
	if d.waited || commands[0].count != nil {
		endWaits(commands)
	}
	replies := c.transmit(d, rdb, commands)
	d.exchange(false)
	c.assess(sent, replies)
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

// connected waits until the connection is set up, for the request of d. If it is doubted, it is
// replaced first.
func (c *connection) connected(d *deadline) (*redis.Client, error) {
	c.mu.Lock()
	if c.closed || c.usableLocked() {
		defer c.mu.Unlock()
		return c.rdb, nil
	}
	c.mu.Unlock()
	rdb, err := c.connect(d)
	d.nextPart()
	return rdb, err
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

func (c *connection) usableLocked() bool { return c.ready && !c.trust.doubts(c.dialed, c.proved) }

// isSetUp reports whether there is a connection, which may be doubted.
func (c *connection) isSetUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.closed
}

// dialing reports whether a dial or a setup has not returned.
func (c *connection) dialing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setting > 0 || c.dials.runs()
}

// prepare begins to set up a connection that is not usable, in the background, unless so many
// setups have not ended: the connection outlives the request that began it. The result is nil
// then, and is otherwise what gets the error.
func (c *connection) prepare(limit int) (setup chan error) {
	finish := func() {}
	c.mu.Lock()
	if c.ready && !c.usableLocked() {
		finish = c.replaceLocked()
	}
	if !c.ready && !c.closed && c.setting < limit {
		setup = make(chan error, 1)
		c.setting++
		go c.setUp(c.rdb, setup)
	}
	c.mu.Unlock()
	finish()
	return setup
}

// connect sets up the connection, or waits until that is done.
func (c *connection) connect(d *deadline) (*redis.Client, error) {
	own := c.prepare(maxDialing)
	for {
		c.mu.Lock()
		if c.ready || c.closed {
			defer c.mu.Unlock()
			return c.rdb, nil
		}
		changed := c.changed
		c.mu.Unlock()
		if own == nil {
			own = c.prepare(maxDialing)
		}
		select {
		case err := <-own:
			c.mu.Lock()
			ready := c.ready
			c.mu.Unlock()
			if err != nil && !ready {
				return nil, err
			}
			own = nil // the connection may have been closed since
		case <-changed:
		case <-d.Done():
			err := d.why()
			if own == nil {
				err = errors.Join(err, errDialsHang)
			}
			return nil, err
		}
	}
}

// await is connect until ctx ends. The setup goes on after that.
func (c *connection) await(ctx context.Context) error {
	var d deadline
	c.limit(ctx, &d, time.Time{}, 0)
	defer d.stop()
	_, err := c.connect(&d) //nolint:contextcheck // d is a context of ctx
	return err
}

// assess records what the answers say about the connection.
func (c *connection) assess(sent time.Duration, replies []Answer) {
	c.failed = false
	for _, r := range replies {
		switch {
		case r.Err == nil:
			c.setReady(true)
		case IsUnsent(r.Err):
			c.failed = true
			c.setReady(false)
			return
		case IsRefused(r.Err):
			c.setReady(true)
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
			c.setReady(false) // go-redis has closed it
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

// setReady records that the server has just answered, or that the connection is closed.
func (c *connection) setReady(answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered {
		c.proved = c.trust.now()
	} else {
		c.ready = false
	}
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
	old := c.rdb
	if !c.closed {
		c.rdb, c.at = c.client()
		c.ready = false
	}
	return func() { _ = old.Close() }
}

// strays reports whether the connection is set up, to a server at another address.
func (c *connection) strays(from string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && c.at.differs(from)
}

// follow closes the connection unless it is set up to this address. A request on it fails: the
// answer of another server does not count.
func (c *connection) follow(to string) {
	c.mu.Lock()
	stays := c.ready && !c.at.differs(to)
	c.mu.Unlock()
	if !stays {
		c.renew()
	}
}

// close ends the present request and prevents others.
func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	rdb := c.rdb
	c.mu.Unlock()
	c.dials.close()
	_ = rdb.Close()
}
