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

// A Line carries the calls of one purpose to a server, over one Pipe at a time. A Pipe is made when it is needed, and
// when the present one is silent, has ended, or is to be replaced. Calls wait for it. The former one answers its last
// calls, unless the new one leads to another address.
//
// No lock of a Pipe is taken while mu is held.
type Line struct {
	*Options // of the dials
	dials    *Dialer
	borrower *Line // whose calls use the Pipe of this Line while it has none; nil if there is none
	lender   *Line // the opposite
	present  atomic.Pointer[Pipe]
	calls    sync.Pool // of calls that were answered

	mu       sync.Mutex
	former   *Pipe // answers its last calls; nil if there is none
	waiting  queue // calls that wait for a Pipe
	nextDial time.Duration
	redial   *time.Timer   // at nextDial
	pauses   retry.Backoff // after failed dials
	failure  error         // of the last dial; nil if it succeeded
	failed   time.Duration // time of failure
	stale    time.Duration // dials that began until then lead to a former server
	had      bool          // there was a Pipe
	closed   bool
}

// NewLine returns a Line without a connection.
func NewLine(o Options) *Line {
	l := &Line{dials: NewDialer(o), pauses: retry.Pauses(10*time.Millisecond, 180*time.Millisecond)}
	l.Options = l.dials.opt
	l.calls.New = newCall
	l.redial = time.AfterFunc(time.Hour, l.dialAgain)
	return l
}

// Borrow makes the calls of l use another Line while l has no connection on which the server answers.
func (l *Line) Borrow(from *Line) { l.lender, from.borrower = from, l }

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
	c.timer.Reset(timeout)
	c.until = l.Now() + timeout
	return c
}

// await returns the answer to a call.
func (l *Line) await(ctx context.Context, c *call) Answer {
	a, left := c.await(ctx, l.unsent)
	if !left {
		c.reset()
		l.calls.Put(c)
	}
	return a
}

// unsent returns the reason why a call was not sent in its time.
func (l *Line) unsent(late error) error {
	if l.present.Load() != nil {
		return late // no dial has delayed it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Now()-l.failed < MaxDialTime {
		late = errors.Join(late, l.failure)
	}
	return l.dials.late(late)
}

// submit gives calls to the Pipe. Without one, they wait, or use that of the lender.
func (l *Line) submit(calls ...*call) {
	for len(calls) > 0 {
		p := l.present.Load()
		switch {
		case p == nil && l.wait(calls), p != nil && p.submit(calls...):
			return
		case p != nil:
			l.retire(p)
		}
	}
}

// wait makes calls wait for a Pipe. It returns false if there is one by now.
func (l *Line) wait(calls []*call) bool {
	lent := l.lender.lend(calls)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed && !lent:
		fail(calls, ErrClosed)
	case lent:
		l.dial()
	case l.present.Load() != nil:
		return false
	default:
		l.waiting.add(calls...)
		l.dial()
	}
	return true
}

// lend gives the calls of the borrower to the Pipe. It returns false if there is none. l may be nil.
func (l *Line) lend(calls []*call) bool {
	if l == nil {
		return false
	}
	p := l.present.Load()
	return p != nil && p.submit(calls...)
}

// Prepare makes a connection, unless there is one.
func (l *Line) Prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.present.Load() == nil {
		l.dial()
	}
}

// dial begins a dial, unless it is too early. The caller holds mu.
func (l *Line) dial() {
	if l.closed || l.Now() < l.nextDial {
		return // redial does it
	}
	least := time.Duration(0)
	if l.dials.begin(l.connected) != nil {
		least = l.dials.patience()
	}
	l.pause(least)
}

// pause delays the next dial, longer each time. The caller holds mu.
func (l *Line) pause(least time.Duration) {
	d := max(least, min(l.pauses.NextBackOff(), l.waiting.hurry()))
	l.nextDial = l.Now() + d
	l.redial.Reset(d)
}

// dialSoon lets the next dial begin at once, if the server has answered on a Pipe. The caller holds mu.
func (l *Line) dialSoon(p *Pipe) {
	if p.answered.Load() {
		l.pauses.Reset()
		l.nextDial = 0
	}
}

// dialAgain begins a dial if a caller waits. It is called at nextDial.
func (l *Line) dialAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.present.Load() == nil && l.waiting.wanted() {
		l.dial()
	}
}

// connected takes the result of a dial. A failed one is that of the calls that waited when it began.
func (l *Line) connected(began time.Duration, p *Pipe, err error) {
	l.mu.Lock()
	switch {
	case err == nil && (l.closed || l.present.Load() != nil || began < l.stale): // if it is stale, dialAgain makes another
		l.mu.Unlock()
		p.Drop()
		return
	case errors.Is(err, errGivenUp):
		l.nextDial = 0
		l.mu.Unlock()
		l.dialAgain()
		return
	case err != nil:
		l.failure, l.failed = err, l.Now()
		var waiting []*call
		if !l.dials.underWay() { // another one may succeed
			l.pause(0)
			waiting = l.waiting.until(began)
		}
		l.mu.Unlock()
		if len(waiting) > 0 && !l.lender.lend(waiting) {
			fail(waiting, &UnsentError{err})
		}
		return
	}
	l.failure = nil
	l.pause(0)
	p.use(l)
	l.present.Store(p)
	former, waiting := l.former, l.waiting.take()
	replaced := l.had && l.Replaced != nil
	l.had = true
	l.mu.Unlock()
	l.dials.giveUp(l.Now())
	if replaced {
		l.Replaced()
	}
	l.submit(append(l.borrower.takeWaiting(), waiting...)...)
	if former != nil && former.Addr != p.Addr {
		former.end(errMoved) // its callers need not wait
	}
}

// takeWaiting returns the calls that wait for a Pipe. l may be nil.
func (l *Line) takeWaiting() []*call {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.take()
}

// retire takes a Pipe out of use.
func (l *Line) retire(p *Pipe) {
	l.mu.Lock()
	var older *Pipe
	if l.present.CompareAndSwap(p, nil) {
		older, l.former = l.former, p
	}
	l.dialSoon(p)
	l.mu.Unlock()
	if older != nil {
		older.end(errSilent)
	}
	l.submit(p.drain()...)
}

var errSilent = errors.New("lockcore: the server was silent on two connections")

// silent is called when the server does not answer on a Pipe.
func (l *Line) silent(p *Pipe) {
	present := l.present.Load() == p
	l.retire(p)
	if present {
		l.Prepare()
	}
}

// ended is called when a Pipe has ended.
func (l *Line) ended(p *Pipe, queue []*call) {
	l.mu.Lock()
	l.present.CompareAndSwap(p, nil)
	if l.former == p {
		l.former = nil
	}
	l.dialSoon(p)
	l.mu.Unlock()
	l.submit(queue...)
}

// Abandon takes the connection out of use if it was made before that time: its server is no longer the right one, or
// it is not needed.
func (l *Line) Abandon(before time.Duration) {
	l.giveUp(before)
	if p := l.present.Load(); p != nil && p.made <= before {
		l.retire(p)
	}
}

// giveUp gives up the dials that began before a time, as they may lead to another server. One of them may have just
// ended.
func (l *Line) giveUp(before time.Duration) {
	l.mu.Lock()
	l.stale = max(l.stale, before)
	l.mu.Unlock()
	l.dials.giveUp(before)
}

// Strays reports whether a connection does not lead to an address.
func (l *Line) Strays(from string) bool { return len(l.away(from)) > 0 }

// away returns the Pipes that do not lead to an address.
func (l *Line) away(from string) (away []*Pipe) {
	for _, p := range l.pipes() {
		if p.Addr != from {
			away = append(away, p)
		}
	}
	return away
}

// pipes returns the Pipes that have not ended.
func (l *Line) pipes() (all []*Pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range []*Pipe{l.present.Load(), l.former} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Follow ends the connections that do not lead to an address. Late answers of another server do not count.
func (l *Line) Follow(to string) {
	l.giveUp(l.Now())
	for _, p := range l.away(to) {
		p.end(errMoved)
	}
}

var errMoved = errors.New("lockcore: the primary is another server")

// Close ends the connections and the dials. Calls end with ErrClosed, or are unknown.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	waiting := l.waiting.take()
	l.redial.Stop()
	l.mu.Unlock()
	l.dials.Close()
	fail(waiting, ErrClosed)
	for _, p := range l.pipes() {
		p.end(net.ErrClosed)
	}
}
