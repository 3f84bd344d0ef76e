package conn

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// A Line carries the calls of one purpose to a server, over one pipe at a time. It makes a pipe when a call needs one,
// and when the current pipe is silent. Meanwhile, calls wait. The former pipe still answers its written calls, unless
// the new pipe leads to another address. mu and the mutex of a pipe are never held at the same time.
type Line struct {
	*Options
	dials    *Dialer
	borrower *Line // optional Line that may use the pipe of this Line while it has no pipe of its own
	lender   *Line // optional Line whose borrower is this Line
	current  atomic.Pointer[pipe]
	calls    sync.Pool // completed calls for reuse

	mu         sync.Mutex
	former     *pipe         // pipe that answers its last calls, or nil
	waiting    queue         // calls that wait for a pipe
	nextDial   time.Duration // earliest time of the next dial
	redial     *time.Timer   // calls dialForCallers at nextDial
	pauses     retry.Backoff // pauses after failed dials
	failure    error         // error of the last dial, nil after a success
	failedAt   time.Duration // time of failure
	staleUntil time.Duration // dials that began until this time may lead to a former server
	connected  bool          // there was a pipe
	closed     bool
}

// NewLine returns a Line without a connection.
func NewLine(o Options) *Line {
	l := &Line{dials: NewDialer(o), pauses: retry.Pauses(10*time.Millisecond, 180*time.Millisecond)}
	l.Options = l.dials.opt
	l.calls.New = newCall
	l.redial = time.AfterFunc(time.Hour, l.dialForCallers) // pause sets the time
	return l
}

// Borrow lets the calls of l use the connection of a lender while l has none.
func (l *Line) Borrow(lender *Line) { l.lender, lender.borrower = lender, l }

// Do sends one command and waits for its answer, until ctx ends or the timeout has passed.
func (l *Line) Do(ctx context.Context, command Command, timeout time.Duration) Answer {
	if err := ctx.Err(); err != nil {
		return Answer{Err: err}
	}
	c := l.newCall(command, timeout)
	l.submit(c)
	return l.await(ctx, c)
}

// All sends commands in their order and waits for their answers.
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
	c.timer.Reset(timeout)
	c.deadline = l.Now() + timeout
	return c
}

func (l *Line) await(ctx context.Context, c *call) Answer {
	a, abandoned := c.await(ctx, l.unsent)
	if !abandoned {
		c.reset()
		l.calls.Put(c)
	}
	return a
}

// unsent returns the reason why a call was not sent in time: late, joined with the error of a recent dial.
func (l *Line) unsent(late error) error {
	if l.current.Load() != nil {
		return late // no dial has delayed it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Now()-l.failedAt < MaxDialTime {
		late = errors.Join(late, l.failure)
	}
	return l.dials.withHint(late)
}

// submit passes calls to the current pipe. Without one, the calls wait or use the lender's.
func (l *Line) submit(calls ...*call) {
	for len(calls) > 0 {
		p := l.current.Load()
		switch {
		case p == nil && l.wait(calls), p != nil && p.submit(calls...):
			return
		case p != nil:
			l.retire(p)
		}
	}
}

// wait makes calls wait for a pipe, or passes them to the lender. It returns false if there is a pipe now.
func (l *Line) wait(calls []*call) bool {
	lent := l.lender.lend(calls)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed && !lent:
		failAll(calls, ErrClosed)
	case lent:
		l.dial()
	case l.current.Load() != nil:
		return false
	default:
		l.waiting.add(calls...)
		l.dial()
	}
	return true
}

// lend passes the calls of the borrower to the current pipe. It returns false without one. l may be nil.
func (l *Line) lend(calls []*call) bool {
	if l == nil {
		return false
	}
	p := l.current.Load()
	return p != nil && p.submit(calls...)
}

// Prepare makes a connection, unless there is one.
func (l *Line) Prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current.Load() == nil {
		l.dial()
	}
}

// dial begins a dial, unless it is too early. The caller holds mu.
func (l *Line) dial() {
	if l.closed || l.Now() < l.nextDial {
		return // dialForCallers does it later
	}
	shortest := time.Duration(0)
	if a := l.dials.start(); a != nil {
		go func() { l.finishDial(a.began, <-a.result) }()
		shortest = l.dials.redialAfter()
	}
	l.pause(shortest)
}

// pause delays the next dial, longer after each dial, and at least for shortest. The caller holds mu.
func (l *Line) pause(shortest time.Duration) {
	d := max(shortest, min(l.pauses.NextBackOff(), l.waiting.redialPause()))
	l.nextDial = l.Now() + d
	l.redial.Reset(d)
}

// resetPause ends the pause before the next dial if the server has answered on a pipe. The caller holds mu.
func (l *Line) resetPause(p *pipe) {
	if p.answered.Load() {
		l.pauses.Reset()
		l.nextDial = 0
	}
}

// dialForCallers begins a dial if a caller waits. It is called at nextDial.
func (l *Line) dialForCallers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current.Load() == nil && l.waiting.hasCaller() {
		l.dial()
	}
}

// finishDial handles the result of a dial. A failure completes the calls that waited when the dial began.
func (l *Line) finishDial(began time.Duration, r dialResult) {
	l.mu.Lock()
	switch {
	case r.err == nil && (l.closed || l.current.Load() != nil || began < l.staleUntil): // after a stale dial, dialForCallers begins the next one
		l.mu.Unlock()
		r.conn.Drop()
		return
	case errors.Is(r.err, errCanceled):
		l.nextDial = 0
		l.mu.Unlock()
		l.dialForCallers()
		return
	case r.err != nil:
		l.failure, l.failedAt = r.err, l.Now()
		var waiting []*call
		if !l.dials.isRunning() { // another attempt may succeed
			l.pause(0)
			waiting = l.waiting.takeUntil(began)
		}
		l.mu.Unlock()
		if len(waiting) > 0 && !l.lender.lend(waiting) {
			failAll(waiting, &UnsentError{r.err})
		}
		return
	}
	l.failure = nil
	l.pause(0)
	p := newPipe(r.conn, l)
	p.serve()
	l.current.Store(p)
	former, waiting := l.former, l.waiting.takeAll()
	replaced := l.connected && l.Replaced != nil
	l.connected = true
	l.mu.Unlock()
	l.dials.cancelUntil(l.Now())
	if replaced {
		l.Replaced()
	}
	l.submit(append(l.borrower.takeWaiting(), waiting...)...)
	if former != nil && former.Addr != p.Addr {
		former.end(errMoved) // its callers need not wait for a server that is no longer used
	}
}

// takeWaiting removes the calls that wait for a pipe and returns them. l may be nil.
func (l *Line) takeWaiting() []*call {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.takeAll()
}

// retire makes p the former pipe. Its calls that are not written go to the next pipe. An older former pipe ends.
func (l *Line) retire(p *pipe) {
	l.mu.Lock()
	var older *pipe
	if l.current.CompareAndSwap(p, nil) {
		older, l.former = l.former, p
	}
	l.resetPause(p)
	l.mu.Unlock()
	if older != nil {
		older.end(errSilent)
	}
	l.submit(p.drain()...)
}

var (
	errSilent = errors.New("lockcore: the server was silent on two connections")
	errMoved  = errors.New("lockcore: the primary is another server")
)

// silent is called when the server is silent on a pipe.
func (l *Line) silent(p *pipe) {
	current := l.current.Load() == p
	l.retire(p)
	if current {
		l.Prepare()
	}
}

// ended is called when a pipe has ended. The queue contains the calls that are not written.
func (l *Line) ended(p *pipe, queue []*call) {
	l.mu.Lock()
	l.current.CompareAndSwap(p, nil)
	if l.former == p {
		l.former = nil
	}
	l.resetPause(p)
	l.mu.Unlock()
	l.submit(queue...)
}

// Close ends the connections and the dials. Calls that were not written end with ErrClosed, others with ErrUnknown.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	waiting, pipes := l.waiting.takeAll(), []*pipe{l.current.Load(), l.former}
	l.redial.Stop()
	l.mu.Unlock()
	l.dials.Close()
	failAll(waiting, ErrClosed)
	for _, p := range pipes {
		if p != nil {
			p.end(net.ErrClosed)
		}
	}
}
