package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A dialer makes the connections of one purpose: it dials and sets them up. Each time, that runs on its
// own goroutine, because a Dialer, a TLS handshake, a proxy, a name server or a provider of credentials
// may hang and ignore its context. A connection that comes too late is closed.
type dialer struct {
	opt     redis.Options // they come from a redis.Client
	role    role
	history *history // checked on each connection; nil: not
	ctx     context.Context
	cancel  context.CancelFunc

	running chan struct{} // an element for each dial that has not returned

	mu      sync.Mutex
	setting *dial // the one that sets up its connection; nil: none
}

func newDialer(opt redis.Options, r role, h *history) *dialer {
	d := &dialer{opt: opt, role: r, history: h, running: make(chan struct{}, maxDialing)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// maxDialing limits the dials of a connection that have not returned. It is more than one because a dial
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

// A dial is one call of a dialer.
type dial struct {
	timer *time.Timer            // of the present step
	calls atomic.Pointer[string] // the name of the user's function that is called, or was called last
	began time.Time

	pipe *pipe         // it is set up; guarded by dialer.mu
	took time.Duration // until then
}

// turn records that a connection is set up from now on. Only one is at a time: a server that is silent has few
// connections. It returns false if another one is, and may succeed yet. One that takes too long is given up.
func (d *dialer) turn(call *dial, p *pipe) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	call.pipe, call.took = p, time.Since(call.began)
	if s := d.setting; s != nil {
		if time.Since(s.began) < max(4*s.took, d.opt.DialTimeout/3) {
			return false
		}
		s.pipe.drop()
	}
	d.setting = call
	return true
}

// done is the opposite of turn.
func (d *dialer) done(call *dial) {
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

// connect makes a connection that is ready for requests, until ctx ends. It returns earlier if the Dialer
// takes longer than DialTimeout, or the setup longer than two of them: it sends two requests, one after the
// other.
func (d *dialer) connect(ctx context.Context) (*pipe, error) {
	return d.guard(ctx, func(ctx context.Context, call *dial) (*pipe, error) {
		p, err := d.dial(ctx, call)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil || !d.turn(call, p) {
			p.drop()
			return nil, errBeside
		}
		ready := false
		defer func() { // even if a function of the user panics
			d.done(call)
			if !ready {
				p.drop()
			}
		}()
		err = d.setUp(ctx, call, p)
		ready = err == nil
		return p, err
	})
}

// find returns where a connection leads to. Nothing is sent on it.
func (d *dialer) find(ctx context.Context) (addr string, err error) {
	p, err := d.guard(ctx, d.dial)
	if err != nil {
		return "", err
	}
	p.drop()
	return p.addr, nil
}

// guard calls f on its own goroutine, unless maxDialing calls have not returned. It returns when the time of
// the step of f or ctx ends.
func (d *dialer) guard(ctx context.Context, f func(ctx context.Context, call *dial) (*pipe, error)) (*pipe, error) {
	select {
	case d.running <- struct{}{}:
	case <-time.After(returnWithin):
		return nil, errDialsHang
	}
	type result struct {
		pipe *pipe
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() //nolint:contextcheck // it ends with either
	call := &dial{timer: time.NewTimer(time.Hour), began: time.Now()}
	defer call.timer.Stop()
	call.begin(theDialer, d.opt.DialTimeout)
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
					r.pipe.drop()
				}
			}
		}()
		r.pipe, r.err = f(ctx, call)
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

// late returns the error of a wait for a dial, with what may be its cause.
func (d *dialer) late(err error) error {
	switch running := len(d.running); {
	case running == maxDialing:
		return errors.Join(err, errDialsHang)
	case running > 0 && d.opt.TLSConfig != nil:
		return errors.Join(err, errHandshake)
	}
	return err
}

// dial calls the Dialer, which may return invalid values.
func (d *dialer) dial(ctx context.Context, _ *dial) (*pipe, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opt.DialTimeout)
	defer cancel()
	conn, err := d.opt.Dialer(ctx, d.opt.Network, d.opt.Addr)
	switch {
	case err != nil:
		return nil, err // that of go-redis also returns a nil *tls.Conn, which is not a nil net.Conn
	case conn == nil || reflect.ValueOf(conn).Kind() == reflect.Pointer && reflect.ValueOf(conn).IsNil():
		return nil, errors.New("lockcore: the Dialer returned neither a connection nor an error")
	}
	return newPipe(conn, &d.opt), nil
}

// close ends all dials and makes later ones fail.
func (d *dialer) close() { d.cancel() }
