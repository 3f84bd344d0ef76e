package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Dialer makes connections: it dials and sets them up. Each time, that runs on its own goroutine, because the user's
// Dialer, a TLS handshake, a proxy, a name server or a provider of credentials may hang and ignore its context. A
// connection that comes too late is closed.
type Dialer struct {
	opt    *Options
	ctx    context.Context
	cancel context.CancelFunc

	running chan struct{} // an element for each dial that has not returned

	mu      sync.Mutex
	setting *dial // the one that sets up its connection; nil: none
}

// MaxDialTime limits a dial that honors its context, and is the default of DialTimeout.
const MaxDialTime = 3 * time.Second

// NewDialer returns a Dialer.
func NewDialer(o Options) *Dialer {
	if t := o.Redis.DialTimeout; t <= 0 || t > MaxDialTime {
		o.Redis.DialTimeout = MaxDialTime
	}
	d := &Dialer{opt: &o, running: make(chan struct{}, maxDialing)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// maxDialing limits the dials that have not returned. It is more than one because a dial
// that began in an outage repeats its SYN only after seconds. A new dial sends one at once.
const maxDialing = 3

// returnWithin is how long a dial that was given up may take to return, before it counts as one that hangs.
const returnWithin = 5 * time.Millisecond

var errHandshake = errors.New("lockcore: the dial has not returned, which includes the TLS handshake: do the server, and the Sentinels if there are any, speak TLS?")

// The functions of the user that a dial calls.
const (
	theDialer   = "Dialer"
	theProvider = "CredentialsProvider"
	theStream   = "StreamingCredentialsProvider"
)

// A dial is one call of a Dialer.
type dial struct {
	timer *time.Timer            // of the present step
	calls atomic.Pointer[string] // the name of the user's function that is called, or was called last
	began time.Time

	pipe *Pipe         // it is set up; guarded by Dialer.mu
	took time.Duration // until then
}

// turn records that a connection is set up from now on. Only one is at a time: a server that is silent has few
// connections. It returns false if another one is, and may succeed yet. One that takes too long is given up.
func (d *Dialer) turn(call *dial, p *Pipe) bool {
	d.mu.Lock()
	if d.setsUp() {
		d.mu.Unlock()
		return false
	}
	slow := d.setting
	call.pipe, call.took = p, time.Since(call.began)
	d.setting = call
	d.mu.Unlock()
	if slow != nil {
		slow.pipe.Drop()
	}
	return true
}

// busy reports whether another dial helps nothing, as the server answers on none.
func (d *Dialer) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setsUp()
}

// setsUp reports whether a connection is being set up, and may succeed yet. The caller holds mu.
func (d *Dialer) setsUp() bool {
	s := d.setting
	return s != nil && time.Since(s.began) < max(4*s.took, d.opt.Redis.DialTimeout/3)
}

// done is the opposite of turn.
func (d *Dialer) done(call *dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.setting == call {
		d.setting = nil
	}
}

var errBeside = errors.New("lockcore: another connection is being set up")

// begin starts the time of the next step.
func (d *dial) begin(step string, within time.Duration) {
	d.calls.Store(&step)
	d.timer.Reset(within)
}

// errDialsHang is the error of a dial that is not begun.
var errDialsHang = errors.New("lockcore: earlier dials have not returned, although their time is over: do the Dialer and the CredentialsProvider honor their context?")

// Connect makes a connection that is ready for commands, until ctx ends. It returns earlier if the user's Dialer
// takes longer than DialTimeout, or the setup longer than two of them: it sends two requests, one after the
// other.
func (d *Dialer) Connect(ctx context.Context) (*Pipe, error) {
	select {
	case d.running <- struct{}{}:
	case <-time.After(returnWithin):
		return nil, d.late(errDialsHang)
	}
	type result struct {
		pipe *Pipe
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() //nolint:contextcheck // it ends with either
	call := &dial{timer: time.NewTimer(time.Hour), began: time.Now()}
	defer call.timer.Stop()
	call.begin(theDialer, d.opt.Redis.DialTimeout)
	ended := make(chan result)
	go func() {
		var r result
		returned := false
		defer func() { // even if a function of the user ends the goroutine
			switch did := recover(); {
			case did != nil:
				r = result{err: fmt.Errorf("lockcore: the %s panicked: %v", *call.calls.Load(), did)}
			case !returned:
				r = result{err: fmt.Errorf("lockcore: the %s has ended its goroutine with runtime.Goexit", *call.calls.Load())}
			}
			<-d.running
			select {
			case ended <- r:
			case <-ctx.Done(): // the caller has gone
				if r.err == nil {
					r.pipe.Drop()
				}
			}
		}()
		r.pipe, r.err = d.connectAny(ctx, call)
		returned = true
	}()
	select {
	case r := <-ended:
		return r.pipe, r.err
	case <-call.timer.C:
		return nil, d.late(fmt.Errorf("lockcore: the %s has not returned: %w", *call.calls.Load(), context.DeadlineExceeded))
	case <-ctx.Done():
		if d.ctx.Err() != nil {
			return nil, net.ErrClosed
		}
		return nil, d.late(ctx.Err())
	}
}

// connectAny connects to the first address of Where that works, or to that in the options.
func (d *Dialer) connectAny(ctx context.Context, call *dial) (p *Pipe, err error) {
	addrs := []string{""}
	if d.opt.Where != nil {
		if addrs, err = d.opt.Where(ctx); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		if p, err = d.connect(ctx, call, addr); err == nil {
			break
		}
	}
	return p, err
}

func (d *Dialer) connect(ctx context.Context, call *dial, addr string) (*Pipe, error) {
	p, err := d.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil || !d.turn(call, p) {
		p.Drop()
		return nil, errBeside
	}
	ready := false
	defer func() { // even if a function of the user panics
		d.done(call)
		if !ready {
			p.Drop()
		}
	}()
	err = d.setUp(ctx, call, p)
	ready = err == nil
	return p, err
}

// late returns the error of a wait for a dial, with what may be its cause.
func (d *Dialer) late(err error) error {
	switch running := len(d.running); {
	case running > 0 && d.opt.Redis.TLSConfig != nil:
		err = errors.Join(err, errHandshake)
	case running == maxDialing && !errors.Is(err, errDialsHang):
		err = errors.Join(err, errDialsHang)
	}
	return err
}

// dial calls the Dialer. addr is that of Where, or empty.
func (d *Dialer) dial(ctx context.Context, addr string) (*Pipe, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.Redis.DialTimeout)
	defer cancel()
	conn, err := d.opt.Redis.Dialer(ctx, d.opt.Redis.Network, cmp.Or(addr, d.opt.Redis.Addr))
	if err != nil {
		return nil, err // that of go-redis also returns a nil *tls.Conn, which is not a nil net.Conn
	}
	p := newPipe(conn, d.opt)
	p.Addr = cmp.Or(addr, p.Addr)
	return p, nil
}

// Close ends all dials and makes later ones fail.
func (d *Dialer) Close() { d.cancel() }
