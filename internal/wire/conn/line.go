package conn

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Line carries the calls of one purpose to a server. It has one pipe, which is made when it is needed, and again
// after a failure. If the server is silent on it, another one is made in the background, and takes the new calls;
// the old one is read until its callers have left, or ended if the new one leads to another address.
type Line struct {
	*Options // those of dials
	dials    *Dialer
	borrower *Line // its calls use this one while it has no pipe; may be nil
	lender   *Line // the opposite

	mu      sync.Mutex
	pipe    *Pipe         // takes new calls; nil: none
	old     *Pipe         // is silent, or serves its last calls; nil: none
	waiting []*call       // for a pipe
	dialing []*redial     // the newest is last
	begun   time.Duration // when the last dial began
	took    time.Duration // how long the last dial took; 0: none was made
	had     bool          // there was a pipe
	closed  bool
	calls   sync.Pool // *call, of callers that were answered
}

// Options are what a Line needs. A Dialer uses Redis, Where, Check and Ready only.
type Options struct {
	Redis redis.Options // they come from a redis.Client

	// Where returns the addresses to connect to, one after the other until one is ready; nil: that in Redis, and a
	// connection leads to its remote address.
	Where func(ctx context.Context) ([]string, error)

	// Check judges the answer to HELLO. Ready is the last step of a setup, and sends commands with ask; nil: there is none.
	Check func(hello map[any]any) error
	Ready func(ask func(...Command) ([]Answer, error)) error

	Replicas int                  // must acknowledge a command that has Within
	Began    time.Time            // of Now
	Ticks    func() time.Duration // of a Stamp
	Refusal  func() error         // why a command that Grants must not be sent now; nil: never

	Refused  func(sent time.Duration, err error) // called with each error of a call that was answered; may be nil
	Replaced func()                              // called when a pipe has replaced an earlier one; may be nil
}

const (
	// doubtAfter is the time between two questions whether another connection is needed.
	doubtAfter = 100 * time.Millisecond

	// LeastPatience is how long an answer may take at least, before another connection is made.
	LeastPatience = 10 * time.Millisecond
)

// NewLine returns a Line without a connection.
func NewLine(o Options) *Line {
	l := &Line{dials: NewDialer(o)}
	l.Options = l.dials.opt
	l.calls.New = func() any { return &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)} }
	return l
}

// Borrow makes the calls of l use another Line while l has no connection on which the server answers.
func (l *Line) Borrow(from *Line) { l.lender, from.borrower = from, l }

// Now is the time of a Line.
func (l *Line) Now() time.Duration { return time.Since(l.Began) }

// Do sends one command and waits for its answer, until ctx ends or for the timeout.
func (l *Line) Do(ctx context.Context, command Command, timeout time.Duration) Answer {
	if err := ctx.Err(); err != nil {
		return Answer{Err: err}
	}
	c := l.newCall(command, timeout)
	l.submit(c)
	return l.await(ctx, c)
}

// All sends commands one behind the other, and waits for their answers.
func (l *Line) All(ctx context.Context, commands []Command, timeout time.Duration) []Answer {
	calls := make([]*call, len(commands))
	for i, command := range commands {
		calls[i] = l.newCall(command, timeout)
	}
	l.submit(calls...)
	answers := make([]Answer, len(calls))
	for i, c := range calls {
		answers[i] = l.await(ctx, c)
	}
	return answers
}

func (l *Line) newCall(command Command, timeout time.Duration) *call {
	c := l.calls.Get().(*call)
	c.command, c.timeout = command, timeout
	c.timer.Reset(timeout / 3)
	c.until = l.Now() + timeout
	return c
}

// submit gives calls to the pipe. If there is none, or the server is silent on it, they use that of the lender, or wait.
func (l *Line) submit(calls ...*call) {
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
func (l *Line) lend(calls []*call) bool {
	if l == nil {
		return false
	}
	p := l.current()
	if p == nil {
		return false
	}
	if silent, _ := p.isSilent(LeastPatience, l.Now()); silent { // an earlier batch was not answered on it, either
		l.connect(calls[0].timeout)
		return false
	}
	return p.submit(true, calls...)
}

// current returns the pipe for new calls, nil if there is none.
func (l *Line) current() *Pipe {
	l.mu.Lock()
	p := l.pipe
	if p == nil {
		l.mu.Unlock()
		return nil
	}
	usable, silent := p.usable(l.Now())
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
func (l *Line) revived(p *Pipe) {
	l.mu.Lock()
	present := l.pipe == p
	l.mu.Unlock()
	waiting := l.borrower.takeWaiting()
	if present {
		waiting = append(waiting, l.takeWaiting()...)
	}
	l.submitLater(waiting)
}

// connect makes a pipe for calls with that timeout, which then wait for it. It returns false if there is one by now.
func (l *Line) connect(timeout time.Duration, calls ...*call) bool {
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

// Prepare makes a connection, unless there is one.
func (l *Line) Prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pipe == nil && len(l.dialing) == 0 {
		l.dialLocked(l.Redis.DialTimeout)
	}
}

// A redial is a dial that has not ended.
type redial struct {
	began time.Duration
	ctx   context.Context
	end   context.CancelFunc
}

// dialLocked begins a dial for a call with that timeout. If another one takes longer than such dials did, the new one
// begins beside it, or in place of the oldest: one that began in an outage repeats its SYN only after seconds, and one
// over a network that has become slow needs its time.
func (l *Line) dialLocked(timeout time.Duration) {
	now := l.Now()
	if n := len(l.dialing); n > 0 {
		patience := min(max(4*l.took, 5*time.Millisecond), time.Second)
		if l.took == 0 {
			patience = timeout
		}
		if now-l.begun < patience || n == maxDialing && l.took == 0 || l.dials.busy() {
			return
		}
		if n == maxDialing {
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
	go l.dial(d) // Close makes it fail, and does not wait
}

func (l *Line) dial(d *redial) {
	defer d.end()
	p, err := l.dials.Connect(d.ctx)
	l.connected(d, p, err)
}

// connected takes the result of a dial.
func (l *Line) connected(d *redial, p *Pipe, err error) {
	l.mu.Lock()
	i := slices.Index(l.dialing, d)
	wanted := i >= 0 // or it was given up
	if wanted {
		l.dialing = slices.Concat(l.dialing[:i], l.dialing[i+1:])
	}
	if !wanted || l.closed || err == nil && l.pipe != nil && !l.pipe.isQuiet() {
		l.mu.Unlock()
		if err == nil {
			p.Drop()
		}
		return
	}
	waiting := l.waiting
	switch {
	case err != nil && len(l.dialing) > 0: // another one may succeed
		l.mu.Unlock()
		return
	case err != nil:
		l.waiting = nil
		l.mu.Unlock()
		if len(waiting) > 0 && l.lender.lend(waiting) {
			return
		}
		for _, c := range waiting {
			c.answered(Answer{Err: &UnsentError{err}})
		}
		return
	}
	for _, other := range l.dialing {
		other.end()
	}
	l.dialing = nil
	p.use(l)
	l.took = max(l.Now()-d.began, time.Microsecond)
	silent, retire := l.pipe, l.retireLocked()
	l.pipe, l.waiting = p, nil
	replaced := l.had && l.Replaced != nil
	l.had = true
	l.mu.Unlock()
	retire()
	if replaced {
		l.Replaced()
	}
	if waiting = append(l.borrower.takeWaiting(), waiting...); len(waiting) > 0 {
		l.submit(waiting...)
	}
	if silent != nil && silent.Addr != p.Addr {
		silent.end(errMoved) // its callers need not wait
	}
}

// takeWaiting returns the calls that wait for a pipe, which the caller submits. l may be nil.
func (l *Line) takeWaiting() (waiting []*call) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, l.waiting = l.waiting, nil
	return waiting
}

// retireLocked takes the pipe out of use. The caller holds mu, and calls what it returns without it.
func (l *Line) retireLocked() func() {
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
func (l *Line) ended(p *Pipe, queue []*call) {
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
func (l *Line) submitLater(calls []*call) {
	if len(calls) > 0 {
		go l.submit(calls...) // it ends with the write
	}
}

// await returns the answer of a call.
func (l *Line) await(ctx context.Context, c *call) Answer {
	for {
		select {
		case <-c.done:
			a := c.answer
			c.timer.Stop()
			c.command, c.answer, c.pipe = Command{}, Answer{}, nil
			c.state.Store(callQueued)
			l.calls.Put(c)
			return a
		case <-c.timer.C:
			if left := c.until - l.Now(); left > 0 {
				c.timer.Reset(min(left, l.Doubt(c.timeout/3, c.timeout)))
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
func (l *Line) leave(ctx context.Context, c *call) (a Answer, left bool) {
	why := ctx.Err()
	late := error(&NoAnswerError{c.timeout})
	if why != nil {
		if late = context.Cause(ctx); errors.Is(why, context.DeadlineExceeded) && late != why { //nolint:errorlint // the same error
			why = nil // the cause says it
		}
	}
	if c.state.CompareAndSwap(callQueued, callLeft) {
		return Answer{Err: errors.Join(why, &UnsentError{l.dials.late(late)})}, true
	}
	if c.state.CompareAndSwap(callWritten, callLeft) {
		c.pipe.left()
		return Answer{Err: errors.Join(why, ErrUnknown, late)}, true
	}
	return Answer{}, false
}

// Doubt makes another connection if the server has been silent for so long. It returns after which time to ask again.
func (l *Line) Doubt(patience, timeout time.Duration) time.Duration {
	l.mu.Lock()
	p := l.pipe
	l.mu.Unlock()
	if p == nil {
		l.connect(timeout) // the dial may take long
		return doubtAfter
	}
	silent, again := p.isSilent(patience, l.Now())
	if !silent {
		return max(time.Millisecond, again)
	}
	l.mu.Lock()
	var older *Pipe
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

// Abandon takes the connection out of use if it was made before that time: its server is no longer the right one, or
// it is not needed.
func (l *Line) Abandon(before time.Duration) {
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
func (l *Line) giveUpLocked(before time.Duration) {
	if len(l.dialing) == 0 || l.dialing[len(l.dialing)-1].began > before {
		return
	}
	for _, d := range l.dialing {
		d.end()
	}
	l.dialing = nil
	if l.waiting = slices.DeleteFunc(l.waiting, hasLeft); len(l.waiting) > 0 {
		l.dialLocked(l.Redis.DialTimeout)
	}
}

// Strays reports whether a connection does not lead to an address.
func (l *Line) Strays(from string) bool { return len(l.away(from)) > 0 }

// away returns the pipes that do not lead to an address.
func (l *Line) away(from string) (away []*Pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []*Pipe{l.pipe, l.old} {
		if p != nil && p.Addr != from {
			away = append(away, p)
		}
	}
	return away
}

// Follow ends the connections that do not lead to an address. Late answers of another server do not count.
func (l *Line) Follow(to string) {
	l.mu.Lock()
	l.giveUpLocked(l.Now())
	l.mu.Unlock()
	for _, p := range l.away(to) {
		p.end(errMoved)
	}
}

var errMoved = errors.New("lockcore: the primary is another server")

// Close ends the connections and the dials. Calls end with ErrClosed, or are unknown.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	both, waiting := []*Pipe{l.pipe, l.old}, l.waiting
	l.waiting = nil
	l.mu.Unlock()
	l.dials.Close()
	for _, c := range waiting {
		c.answered(Answer{Err: ErrClosed})
	}
	for _, p := range both {
		if p != nil {
			p.end(net.ErrClosed)
		}
	}
}
