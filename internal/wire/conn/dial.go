package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// A Dialer makes connections. Each attempt runs on its own goroutine, because the user's Dialer, a TLS handshake, a
// proxy, a name server or a provider of credentials may hang and ignore its context. A late connection is closed.
//
// At most two attempts run. A dial that began during an outage repeats its SYN only after seconds, so a newer dial may
// be faster. On a slow network, the older dial is faster. So the oldest attempt is kept, and a third attempt replaces
// the second. Only one connection is in its handshake (HELLO, AUTH and more) at a time: a
// server that is silent on one is silent on all.
type Dialer struct {
	opt    *Options
	ctx    context.Context
	cancel context.CancelFunc

	mu           sync.Mutex
	attempts     []*attempt    // attempts that have not returned, the oldest first
	lastDuration time.Duration // duration of the last success, 0 before the first
}

const (
	// MaxDialTime limits a dial that honors its context, and is the default of DialTimeout.
	MaxDialTime = 3 * time.Second

	maxAttempts = 2
)

// NewDialer returns a Dialer.
func NewDialer(o Options) *Dialer {
	if t := o.Redis.DialTimeout; t <= 0 || t > MaxDialTime {
		o.Redis.DialTimeout = MaxDialTime
	}
	if o.Began.IsZero() {
		o.Began = time.Now()
	}
	if o.Clock == nil {
		o.Clock = o.Now
	}
	d := &Dialer{opt: &o}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

var (
	errDialsHang = errors.New("lockcore: earlier dials have not returned: do the Dialer and the CredentialsProvider honor their context, and with TLS: do the server and the Sentinels speak TLS?")
	errGoexit    = errors.New("lockcore: a function of the user has ended its goroutine")
	errCanceled  = errors.New("lockcore: another connection is being made")
)

// redialAfter returns how long an attempt runs before another one begins beside it.
func (d *Dialer) redialAfter() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastDuration == 0 {
		return d.opt.Redis.DialTimeout
	}
	return min(4*d.lastDuration, d.opt.Redis.DialTimeout/3)
}

// start begins an attempt. It returns nil if another attempt would not help yet.
func (d *Dialer) start() *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isSettingUp():
		return nil
	case len(d.attempts) == maxAttempts:
		d.attempts[maxAttempts-1].cancel() // when it has returned, its Line begins another attempt
		return nil
	}
	a := &attempt{opt: d.opt, began: d.opt.Now(), result: make(chan dialResult, 1)}
	a.ctx, a.cancel = context.WithCancel(d.ctx)
	a.timer = time.AfterFunc(time.Hour, func() { // startStep sets the time
		d.finish(a, nil, d.withHint(fmt.Errorf("lockcore: the %s has not returned: %w", *a.step.Load(), os.ErrDeadlineExceeded)))
	})
	a.startStep("Dialer")
	d.attempts = append(d.attempts, a)
	go d.run(a)
	return a
}

// isSettingUp reports whether a connection is being set up. The caller holds mu.
func (d *Dialer) isSettingUp() bool {
	return slices.ContainsFunc(d.attempts, func(a *attempt) bool { return a.settingUp && a.isRunning() })
}

func (d *Dialer) run(a *attempt) {
	var c *Conn
	err := errGoexit
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("lockcore: the %s panicked: %v", *a.step.Load(), panicked)
		}
		d.mu.Lock()
		d.attempts = slices.DeleteFunc(d.attempts, func(other *attempt) bool { return other == a })
		if err == nil {
			d.lastDuration = max(d.opt.Now()-a.began, 1)
		}
		d.mu.Unlock()
		d.finish(a, c, err)
	}()
	c, err = d.connectAny(a)
}

// finish ends an attempt and sends its first result. It closes a connection that is canceled or late.
func (d *Dialer) finish(a *attempt, c *Conn, err error) {
	d.mu.Lock()
	finished := a.finished
	a.finished = true
	d.mu.Unlock()
	if a.ctx.Err() != nil || finished {
		if c != nil {
			c.Drop()
		}
		c, err = nil, errCanceled
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// No context of the caller has ended, so the error must not match context.DeadlineExceeded.
		err = fmt.Errorf("lockcore: dial: %s: %w", err.Error(), os.ErrDeadlineExceeded)
	}
	a.timer.Stop()
	a.cancel()
	if !finished {
		a.result <- dialResult{c, err}
	}
}

// Connect makes a connection that is ready for commands. It gives up when ctx ends, and earlier if the user's Dialer
// or a reply of the setup takes longer than DialTimeout.
func (d *Dialer) Connect(ctx context.Context) (*Conn, error) {
	a := d.start()
	if a == nil {
		return nil, errDialsHang
	}
	select {
	case r := <-a.result:
		return r.conn, r.err
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	a.cancel()
	go func() {
		if r := <-a.result; r.conn != nil { // finished at the same moment
			r.conn.Drop()
		}
	}()
	if d.ctx.Err() != nil {
		return nil, net.ErrClosed
	}
	return nil, d.withHint(ctx.Err())
}

func (d *Dialer) connectAny(a *attempt) (c *Conn, err error) {
	addrs := []string{""}
	if d.opt.Where != nil {
		if addrs, err = d.opt.Where(a.ctx); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		if c, err = d.connect(a, addr); err == nil {
			break
		}
	}
	return c, err
}

func (d *Dialer) connect(a *attempt, addr string) (*Conn, error) {
	c, err := a.dial(a.ctx, addr)
	if err != nil {
		return nil, err
	}
	ready := false
	defer func() { // even if a function of the user panics
		if !ready {
			c.Drop()
		}
	}()
	if err := d.claimSetup(a); err != nil {
		return nil, err
	}
	err = a.setUp(c)
	ready = err == nil
	return c, err
}

// claimSetup claims the right to set up a connection.
func (d *Dialer) claimSetup(a *attempt) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !a.settingUp && d.isSettingUp() {
		return errCanceled
	}
	a.settingUp = true
	return a.ctx.Err()
}

// isRunning reports whether an attempt may still succeed.
func (d *Dialer) isRunning() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.attempts, (*attempt).isRunning)
}

// cancelUntil cancels the attempts that began no later than end.
func (d *Dialer) cancelUntil(end time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		if a.began <= end {
			a.cancel()
		}
	}
}

// withHint adds the likely cause to the error of a wait for an attempt.
func (d *Dialer) withHint(err error) error {
	d.mu.Lock()
	running := len(d.attempts)
	d.mu.Unlock()
	if running == maxAttempts || running > 0 && d.opt.Redis.TLSConfig != nil {
		return errors.Join(err, errDialsHang)
	}
	return err
}

// Close cancels all attempts and makes later ones fail.
func (d *Dialer) Close() { d.cancel() }
