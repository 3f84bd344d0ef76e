package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Dialer makes connections: it dials and sets them up. Each time, that runs on its own goroutine, because the user's
// Dialer, a TLS handshake, a proxy, a name server or a provider of credentials may hang and ignore its context. A
// connection that comes too late is closed.
//
// Two dials are under way at most. One that began in an outage repeats its SYN only after seconds, and one over a network
// that has become slow needs its time. So the older one is kept, and the newer one is given up for a newer one. One
// connection is set up at a time, because a server that is silent answers on none.
type Dialer struct {
	opt    *Options
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	dials []*dial       // not returned, the oldest is first
	took  time.Duration // by the last one that succeeded; 0 if there is none
}

const (
	// MaxDialTime limits a dial that honors its context, and is the default of DialTimeout.
	MaxDialTime = 3 * time.Second

	// maxDialing limits the dials that have not returned.
	maxDialing = 2

	// returnWithin is how long a dial may take to return when its time is over.
	returnWithin = 5 * time.Millisecond
)

// NewDialer returns a Dialer.
func NewDialer(o Options) *Dialer {
	if t := o.Redis.DialTimeout; t <= 0 || t > MaxDialTime {
		o.Redis.DialTimeout = MaxDialTime
	}
	if o.Began.IsZero() {
		o.Began = time.Now()
	}
	if o.Ticks == nil {
		o.Ticks = o.Now
	}
	d := &Dialer{opt: &o}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

var (
	// errDialsHang is the error of a dial that does not begin, and a reason why a call was not sent.
	errDialsHang = errors.New("lockcore: earlier dials have not returned: do the Dialer and the CredentialsProvider honor their context, and with TLS: do the server and the Sentinels speak TLS?")

	errEnded   = errors.New("lockcore: a function of the user has ended its goroutine")
	errGivenUp = errors.New("lockcore: another connection is being made")
)

// The functions of the user that a dial calls.
const (
	theDialer   = "Dialer"
	theProvider = "CredentialsProvider"
	theStream   = "StreamingCredentialsProvider"
)

// A dial is one call of a Dialer. Dialer.mu guards its fields.
type dial struct {
	ctx    context.Context
	cancel context.CancelFunc
	began  time.Duration
	timer  *time.Timer                                   // ends the present step
	step   atomic.Pointer[string]                        // user's function that is called, or was called last
	setup  bool                                          // the connection is set up
	result func(began time.Duration, p *Pipe, err error) // nil after its call
}

// patience returns after which time another dial begins beside one.
func (d *Dialer) patience() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.took == 0 {
		return d.opt.Redis.DialTimeout
	}
	return min(4*d.took, d.opt.Redis.DialTimeout/3)
}

// begin begins a dial, unless another one helps nothing yet. It calls result once, on another goroutine.
func (d *Dialer) begin(result func(began time.Duration, p *Pipe, err error)) *dial {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isSettingUp():
		return nil
	case len(d.dials) == maxDialing:
		d.dials[maxDialing-1].cancel() // when it has returned, its owner begins another one
		return nil
	}
	c := &dial{began: d.opt.Now(), result: result}
	c.ctx, c.cancel = context.WithCancel(d.ctx)
	c.timer = time.AfterFunc(time.Hour, func() {
		d.finish(c, nil, d.late(fmt.Errorf("lockcore: the %s has not returned: %w", *c.step.Load(), os.ErrDeadlineExceeded)))
	})
	c.begin(theDialer, d.opt.Redis.DialTimeout)
	d.dials = append(d.dials, c)
	go d.run(c)
	return c
}

// underWay reports whether a dial was neither given up nor has taken too long.
func (c *dial) underWay() bool { return c.ctx.Err() == nil }

// isSettingUp reports whether a connection is being set up. The caller holds mu.
func (d *Dialer) isSettingUp() bool {
	return slices.ContainsFunc(d.dials, func(c *dial) bool { return c.setup && c.underWay() })
}

// begin starts the time of the next step.
func (c *dial) begin(step string, within time.Duration) {
	c.step.Store(&step)
	c.timer.Reset(within + returnWithin)
}

// run calls the functions of the user.
func (d *Dialer) run(c *dial) {
	var p *Pipe
	err := errEnded
	defer func() {
		if did := recover(); did != nil {
			err = fmt.Errorf("lockcore: the %s panicked: %v", *c.step.Load(), did)
		}
		d.mu.Lock()
		d.dials = slices.DeleteFunc(d.dials, func(one *dial) bool { return one == c })
		if err == nil {
			d.took = max(d.opt.Now()-c.began, 1)
		}
		d.mu.Unlock()
		d.finish(c, p, err)
	}()
	p, err = d.connectAny(c)
}

// finish ends a dial, and gives its result once. A connection of a dial that was given up is closed.
func (d *Dialer) finish(c *dial, p *Pipe, err error) {
	d.mu.Lock()
	result := c.result
	c.result = nil
	d.mu.Unlock()
	if c.ctx.Err() != nil || result == nil {
		if p != nil {
			p.Drop()
		}
		p, err = nil, errGivenUp
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("lockcore: dial: %s: %w", err.Error(), os.ErrDeadlineExceeded) // a context of the caller has not ended
	}
	c.timer.Stop()
	c.cancel()
	if result != nil {
		result(c.began, p, err)
	}
}

// Connect makes a connection that is ready for commands, until ctx ends. It returns earlier if the user's Dialer
// or a reply of the setup takes longer than DialTimeout.
func (d *Dialer) Connect(ctx context.Context) (*Pipe, error) {
	type result struct {
		pipe *Pipe
		err  error
	}
	ended := make(chan result, 1)
	c := d.begin(func(_ time.Duration, p *Pipe, err error) { ended <- result{p, err} })
	if c == nil {
		return nil, errDialsHang
	}
	select {
	case r := <-ended:
		return r.pipe, r.err
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	c.cancel()
	go func() {
		if r := <-ended; r.pipe != nil { // it came just now
			r.pipe.Drop()
		}
	}()
	if d.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	return nil, d.late(ctx.Err())
}

// connectAny connects to the first address of Where that works, or to that in the options.
func (d *Dialer) connectAny(c *dial) (p *Pipe, err error) {
	addrs := []string{""}
	if d.opt.Where != nil {
		if addrs, err = d.opt.Where(c.ctx); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		if p, err = d.connect(c, addr); err == nil {
			break
		}
	}
	return p, err
}

func (d *Dialer) connect(c *dial, addr string) (*Pipe, error) {
	c.begin(theDialer, d.opt.Redis.DialTimeout)
	p, err := d.call(c.ctx, addr)
	if err != nil {
		return nil, err
	}
	ready := false
	defer func() { // even if a function of the user panics
		if !ready {
			p.Drop()
		}
	}()
	if err := d.turn(c); err != nil {
		return nil, err
	}
	err = d.setUp(c, p)
	ready = err == nil
	return p, err
}

// turn makes a dial the one that sets up its connection.
func (d *Dialer) turn(c *dial) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.setup && d.isSettingUp() {
		return errGivenUp
	}
	c.setup = true
	return c.ctx.Err()
}

// underWay reports whether a dial may succeed yet.
func (d *Dialer) underWay() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.dials, (*dial).underWay)
}

// giveUp gives up the dials that began before a time, as they may lead to another server.
func (d *Dialer) giveUp(before time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.dials {
		if c.began <= before {
			c.cancel()
		}
	}
}

// late returns the error of a wait for a dial, with what may be its cause.
func (d *Dialer) late(err error) error {
	d.mu.Lock()
	running := len(d.dials)
	d.mu.Unlock()
	if running == maxDialing || running > 0 && d.opt.Redis.TLSConfig != nil {
		return errors.Join(err, errDialsHang)
	}
	return err
}

// call calls the Dialer. addr is an address of Where, or empty.
func (d *Dialer) call(ctx context.Context, addr string) (*Pipe, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Redis.DialTimeout)
	defer cancel()
	conn, err := d.opt.Redis.Dialer(ctx, d.opt.Redis.Network, cmp.Or(addr, d.opt.Redis.Addr))
	if err != nil {
		return nil, err // go-redis's Dialer also returns a nil *tls.Conn, which is not a nil net.Conn
	}
	p := newPipe(conn, d.opt)
	p.Addr = cmp.Or(addr, p.Addr)
	return p, nil
}

// Close ends all dials and makes later ones fail.
func (d *Dialer) Close() { d.cancel() }
