package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A line carries the calls of one purpose to a server. It has one pipe, which is made when it is needed, and again
// after a failure. If the server is silent on it, another one is made in the background, and takes the new calls;
// the old one is read until its callers have left.
type line struct {
	dials    *dialer
	replicas int                                 // Config.Replicas
	refused  func(sent time.Duration, err error) // called with each error of a call that was answered; may be nil
	replaced func()                              // called when a pipe has replaced an earlier one; may be nil
	borrower *line                               // its calls use this one while it has no pipe; may be nil
	lender   *line                               // the opposite
	began    time.Time                           // of its times
	ticks    func() time.Duration                // Config.Now

	mu      sync.Mutex
	pipe    *pipe         // takes new calls; nil: none
	old     *pipe         // is silent, or serves its last calls; nil: none
	waiting []*call       // for a pipe
	dialing []*redial     // the newest is last
	begun   time.Duration // when the last dial began
	took    time.Duration // how long the last dial took; 0: none was made
	had     bool          // there was a pipe
	closed  bool
	calls   sync.Pool // *call, of callers that were answered
}

// doubtAfter is the time between two questions whether another connection is needed.
const doubtAfter = 100 * time.Millisecond

func newLine(opt redis.Options, r role, h *history, cfg Config, began time.Time) *line {
	l := &line{dials: newDialer(opt, r, h), replicas: cfg.Replicas, began: began, ticks: cfg.Now}
	l.calls.New = func() any { return &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)} }
	return l
}

// now is the time of a line.
func (l *line) now() time.Duration { return time.Since(l.began) }

// do sends one request and waits for its answer, until ctx ends or for the timeout.
func (l *line) do(ctx context.Context, r Request, timeout time.Duration) Answer {
	if err := ctx.Err(); err != nil {
		return Answer{Err: err}
	}
	c := l.newCall(r, timeout)
	l.submit(c)
	return l.await(ctx, c)
}

// all sends requests one behind the other, and waits for their answers.
func (l *line) all(ctx context.Context, requests []Request, timeout time.Duration) []Answer {
	calls := make([]*call, len(requests))
	for i, r := range requests {
		calls[i] = l.newCall(r, timeout)
	}
	l.submit(calls...)
	answers := make([]Answer, len(calls))
	for i, c := range calls {
		answers[i] = l.await(ctx, c)
	}
	return answers
}

func (l *line) newCall(r Request, timeout time.Duration) *call {
	c := l.calls.Get().(*call)
	c.request, c.timeout = r, timeout
	c.timer.Reset(timeout / 3)
	c.until = l.now() + timeout
	return c
}

// submit gives calls to the pipe. If there is none, or the server is silent on it, they use that of the lender, or wait.
func (l *line) submit(calls ...*call) {
	timeout := calls[0].timeout // once they are given away, others use them
	for {
		p := l.current()
		switch {
		case p != nil && p.submit(false, calls...):
			return
		case l.lender.lend(calls):
			l.connect(timeout)
			return
		case l.connect(timeout, calls...):
			return
		}
	}
}

// lend gives the calls of the borrower to the pipe, before all others. It returns false if there is none. l may be nil.
func (l *line) lend(calls []*call) bool {
	if l == nil {
		return false
	}
	p := l.current()
	if p == nil {
		return false
	}
	if silent, _ := p.isSilent(leastPatience, l.now()); silent { // an earlier batch was not answered on it, either
		l.connect(calls[0].timeout)
		return false
	}
	return p.submit(true, calls...)
}

// current returns the pipe for new calls, nil if there is none.
func (l *line) current() *pipe {
	l.mu.Lock()
	p := l.pipe
	if p == nil {
		l.mu.Unlock()
		return nil
	}
	usable, silent := p.usable(l.now())
	if usable || silent {
		l.mu.Unlock()
		if silent {
			return nil
		}
		return p
	}
	retire := l.retireLocked()
	l.mu.Unlock()
	retire()
	return nil
}

// revived is called when the server has answered on a pipe on which it was silent.
func (l *line) revived(p *pipe) {
	l.mu.Lock()
	var waiting []*call
	if l.pipe == p {
		waiting, l.waiting = l.waiting, nil
	}
	l.mu.Unlock()
	if b := l.borrower; b != nil {
		b.mu.Lock()
		waiting, b.waiting = slices.Concat(b.waiting, waiting), nil
		b.mu.Unlock()
	}
	l.submitLater(waiting)
}

// connect makes a pipe for calls with that timeout, which then wait for it. It returns false if there is one by now.
func (l *line) connect(timeout time.Duration, calls ...*call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		for _, c := range calls {
			c.answered(Answer{Err: ErrClosed})
		}
		return true
	case l.pipe != nil && !l.pipe.isQuiet():
		return false
	}
	if len(l.waiting) >= 2*maxWritten { // callers may have left
		l.waiting = slices.DeleteFunc(l.waiting, hasLeft)
	}
	l.waiting = append(l.waiting, calls...)
	l.dialLocked(timeout)
	return true
}

// prepare makes a pipe, unless there is one.
func (l *line) prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pipe == nil && len(l.dialing) == 0 {
		l.dialLocked(l.dials.opt.DialTimeout)
	}
}

// A redial is a dial that has not ended.
type redial struct {
	began time.Duration
	ctx   context.Context
	end   context.CancelFunc
}

// dialLocked begins a dial for a call with that timeout. If another one takes longer than such dials did, the new one is
// begun beside it, or in its place: one that began in an outage repeats its SYN only after seconds.
func (l *line) dialLocked(timeout time.Duration) {
	now := l.now()
	if n := len(l.dialing); n > 0 {
		patience := min(max(4*l.took, 5*time.Millisecond), time.Second)
		if l.took == 0 {
			patience = timeout
		}
		if now-l.begun < patience {
			return
		}
		if n == maxDialing {
			if l.took == 0 {
				return
			}
			l.dialing[0].end()
			l.dialing = l.dialing[1:]
		}
	}
	if l.closed {
		return
	}
	d := &redial{began: now}
	l.begun = now
	d.ctx, d.end = context.WithCancel(l.dials.ctx)
	l.dialing = append(slices.Clip(l.dialing), d)
	go l.dial(d) // close makes it fail, and does not wait
}

func (l *line) dial(d *redial) {
	defer d.end()
	p, err := l.dials.connect(d.ctx)
	l.connected(d, p, err)
}

// connected takes the result of a dial.
func (l *line) connected(d *redial, p *pipe, err error) {
	l.mu.Lock()
	i := slices.Index(l.dialing, d)
	if i < 0 { // it was given up
		l.mu.Unlock()
		if err == nil {
			p.drop()
		}
		return
	}
	l.dialing = slices.Concat(l.dialing[:i], l.dialing[i+1:])
	waiting := l.waiting
	switch {
	case err != nil && (len(l.dialing) > 0 || l.pipe != nil && !IsPermanent(&unsentError{err})):
		l.mu.Unlock() // another dial may succeed, or the server answer on the pipe on which it is silent
		return
	case err != nil:
		l.waiting = nil
		l.mu.Unlock()
		if len(waiting) > 0 && l.lender.lend(waiting) {
			return
		}
		for _, c := range waiting {
			c.answered(Answer{Err: &unsentError{err}})
		}
		return
	case l.closed || l.pipe != nil && !l.pipe.isQuiet():
		l.mu.Unlock()
		p.drop()
		return
	}
	for _, other := range l.dialing {
		other.end()
	}
	l.dialing = nil
	p.use(l)
	l.took = max(l.now()-d.began, time.Microsecond)
	retire := l.retireLocked()
	l.pipe, l.waiting = p, nil
	replaced := l.had && l.replaced != nil
	l.had = true
	l.mu.Unlock()
	retire()
	if replaced {
		l.replaced()
	}
	if b := l.borrower; b != nil {
		b.mu.Lock()
		waiting, b.waiting = slices.Concat(b.waiting, waiting), nil
		b.mu.Unlock()
	}
	if len(waiting) > 0 {
		l.submit(waiting...)
	}
}

// retireLocked takes the pipe out of use. The caller holds mu, and calls what it returns without it.
func (l *line) retireLocked() func() {
	p, older := l.pipe, l.old
	if p == nil {
		return func() {}
	}
	l.pipe, l.old = nil, p
	return func() {
		if older != nil {
			older.end(errSilent)
		}
		l.submitLater(p.retire())
	}
}

var errSilent = errors.New("lockcore: the server was silent on two connections")

// ended is called when a pipe has ended, with its calls that are not written.
func (l *line) ended(p *pipe, queue []*call) {
	l.mu.Lock()
	if l.pipe == p {
		l.pipe = nil
		queue = slices.Concat(queue, l.waiting)
		l.waiting = nil
	}
	if l.old == p {
		l.old = nil
	}
	closed := l.closed
	l.mu.Unlock()
	switch {
	case len(queue) == 0:
	case closed:
		for _, c := range queue {
			c.answered(Answer{Err: ErrClosed})
		}
	default:
		l.submitLater(queue)
	}
}

// submitLater submits calls that nobody's own goroutine brings. A write may block.
func (l *line) submitLater(calls []*call) {
	if len(calls) > 0 {
		go l.submit(calls...) // it ends with the write
	}
}

// await returns the answer of a call.
func (l *line) await(ctx context.Context, c *call) Answer {
	for {
		select {
		case <-c.done:
			a := c.answer
			c.timer.Stop()
			c.request, c.answer, c.pipe = Request{}, Answer{}, nil
			c.state.Store(callQueued)
			l.calls.Put(c)
			return a
		case <-c.timer.C:
			if left := c.until - l.now(); left > 0 {
				c.timer.Reset(min(left, l.doubt(c.timeout/3, c.timeout)))
				continue
			}
		case <-ctx.Done():
		}
		if a, left := l.leave(ctx, c); left {
			return a
		}
	}
}

func hasLeft(c *call) bool { return c.state.Load() == callLeft }

// leave ends the wait for an answer. It returns false if the answer is there.
func (l *line) leave(ctx context.Context, c *call) (a Answer, left bool) {
	why := ctx.Err()
	late := NoAnswer(c.timeout)
	if why != nil {
		if late = context.Cause(ctx); errors.Is(why, context.DeadlineExceeded) && late != why { //nolint:errorlint // the same error
			why = nil // the cause says it
		}
	}
	if c.state.CompareAndSwap(callQueued, callLeft) {
		return Answer{Err: errors.Join(why, &unsentError{l.dials.late(late)})}, true
	}
	if c.state.CompareAndSwap(callWritten, callLeft) {
		c.pipe.left()
		return Answer{Err: errors.Join(why, ErrUnknown, late)}, true
	}
	return Answer{}, false
}

// doubt makes another pipe if the server is silent for so long. It returns after which time to ask again.
func (l *line) doubt(patience, timeout time.Duration) time.Duration {
	l.mu.Lock()
	p := l.pipe
	l.mu.Unlock()
	if p == nil {
		l.connect(timeout) // the dial may take long
		return doubtAfter
	}
	silent, again := p.isSilent(patience, l.now())
	if !silent {
		return max(time.Millisecond, again)
	}
	l.mu.Lock()
	var older *pipe
	if l.pipe == p {
		older = l.old
		l.dialLocked(timeout)
	}
	l.mu.Unlock()
	if older != nil {
		older.end(errSilent)
	}
	return doubtAfter
}

// abandon takes the pipe out of use if it was made before that time: the server is no longer the right one.
func (l *line) abandon(before time.Duration) {
	retire := func() {}
	l.mu.Lock()
	if l.pipe != nil && l.pipe.made <= before {
		retire = l.retireLocked()
	}
	l.giveUpLocked(before)
	l.mu.Unlock()
	retire()
}

// giveUpLocked ends the dials that began before a time, as they may lead to another server. The caller holds mu.
func (l *line) giveUpLocked(before time.Duration) {
	if len(l.dialing) == 0 || l.dialing[len(l.dialing)-1].began > before {
		return
	}
	for _, d := range l.dialing {
		d.end()
	}
	l.dialing = nil
	l.waiting = slices.DeleteFunc(l.waiting, hasLeft)
	if len(l.waiting) > 0 {
		l.dialLocked(l.dials.opt.DialTimeout)
	}
}

// away returns the pipes that do not lead to an address.
func (l *line) away(from string) (away []*pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []*pipe{l.pipe, l.old} {
		if p != nil && p.addr != from {
			away = append(away, p)
		}
	}
	return away
}

// follow ends the pipes that do not lead to an address. Late answers of another server do not count.
func (l *line) follow(to string) {
	l.mu.Lock()
	l.giveUpLocked(l.now())
	l.mu.Unlock()
	for _, p := range l.away(to) {
		p.end(errMoved)
	}
}

var errMoved = errors.New("lockcore: the primary is another server")

// close ends the pipes and the dials. Calls end with ErrClosed, or are unknown.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	both, waiting := []*pipe{l.pipe, l.old}, l.waiting
	l.waiting = nil
	l.mu.Unlock()
	l.dials.close()
	for _, c := range waiting {
		c.answered(Answer{Err: ErrClosed})
	}
	for _, p := range both {
		if p != nil {
			p.end(net.ErrClosed)
		}
	}
}
