package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	connections    = 4   // concurrent requests or batches
	maxConnections = 12  // of them, while some do not answer
	maxBatch       = 128 // calls in one batch
)

// A dispatcher sends the calls of all goroutines of a Client. While a connection is free, a
// call is sent at once on its caller's goroutine. While all are in use, calls queue. The
// first free connection then sends them as one batch. A caller whose context ends returns at
// once. If the call was not sent before, it is never sent. If it was sent, its answer is
// ignored.
//
// A call may wait for its answer for longer than another one may wait for a connection. So if
// a call has queued for a third of its timeout, there is another connection. It is closed
// when more than the usual number are free.
type dispatcher struct {
	trust *trust // of all connections
	make  func() *connection

	mu      sync.Mutex
	all     []*connection
	free    []*connection      // those that failed are first, the one used last is last
	queue   []*call            // empty while a connection is free that is set up
	borrows []chan *connection // of those that wait for one
	closed  bool
	wg      sync.WaitGroup // requests and batches in flight
	calls   sync.Pool      // *call, of callers that were answered
	failed  func(Request, error)
}

// A call is one command and its state.
type call struct {
	request Request
	timeout time.Duration // of the wait for a connection, and again of that for the answer
	state   atomic.Int32
	sent    atomic.Int64 // by trust.now; set before the state is callSent
	answer  Answer
	done    chan struct{} // gets a value once answer is set; nothing uses the call after that
	timer   *time.Timer   // of the caller
}

const (
	callQueued = iota
	callSent
	callDropped
)

// newDispatcher makes a dispatcher that calls failed for each call that fails.
func newDispatcher(opt redis.Options, r role, h *history, failed func(Request, error)) *dispatcher {
	d := &dispatcher{failed: failed, all: newConnections(connections, opt, r, h)}
	d.trust = d.all[0].trust
	d.make = func() *connection {
		f := newConnection(opt, d.trust, r, h)
		f.prepared = d.prepared
		return f
	}
	for _, f := range d.all {
		f.prepared = d.prepared
	}
	d.free = append(d.free, d.all...)
	d.calls.New = func() any { return &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)} }
	return d
}

// close aborts the requests in flight and answers the queued ones with ErrClosed.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	for _, c := range d.queue {
		c.answer.Err = ErrClosed
		c.done <- struct{}{}
	}
	d.queue = nil
	all := d.all
	d.mu.Unlock()
	for _, f := range all {
		f.close()
	}
	d.wg.Wait()
}

// connections returns all connections.
func (d *dispatcher) connections() []*connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// do sends one command and waits for its answer, until ctx ends. The timeout is that of the
// wait for a connection, and again of each round trip. If the error is ErrUnknown, the command
// may have been applied.
func (d *dispatcher) do(ctx context.Context, r Request, timeout time.Duration) (any, error) {
	answer, err := d.send(ctx, r, timeout)
	if err != nil && (errors.Is(err, ErrUnknown) || errors.Is(err, ErrNotReplicated) || IsRefused(err) || IsUnsent(err)) {
		d.failed(r, err)
	}
	return answer, err
}

func (d *dispatcher) send(ctx context.Context, r Request, timeout time.Duration) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	if i := d.choose(); i >= 0 {
		f := d.take(i)
		d.mu.Unlock()
		answer, c := d.sendNow(ctx, f, r, timeout)
		if c != nil {
			return d.await(ctx, c)
		}
		return answer.Value, answer.Err
	}
	c := d.newCall(r, timeout)
	d.queue = append(d.queue, c)
	d.mu.Unlock()
	return d.await(ctx, c)
}

// choose returns the index of the free connection for a request. It is -1 if the request must
// queue: none is free, or others work and those that are free are being dialed, or could not be made a
// moment ago. The caller holds mu.
func (d *dispatcher) choose() int {
	last := len(d.free) - 1
	if last < 0 || !d.free[last].failed {
		return last
	}
	if i, others := d.usable(); i >= 0 {
		return i
	} else if others && (d.free[last].rests() || d.free[last].dialing()) {
		return -1
	}
	return last
}

// usable returns the index of a free connection that is set up, or -1, and then whether one is set
// up that is in use. The caller holds mu.
func (d *dispatcher) usable() (free int, others bool) {
	for _, f := range d.all {
		if f.usable() {
			if i := slices.Index(d.free, f); i >= 0 {
				return i, false
			}
			others = true
		}
	}
	return -1, others
}

// take takes a free connection. The caller holds mu.
func (d *dispatcher) take(i int) *connection {
	f := d.free[i]
	d.free = slices.Delete(d.free, i, i+1)
	d.wg.Add(1)
	return f
}

func (d *dispatcher) newCall(r Request, timeout time.Duration) *call {
	c := d.calls.Get().(*call)
	c.request, c.timeout = r, timeout
	return c
}

// await returns the answer of a call that queues.
func (d *dispatcher) await(ctx context.Context, c *call) (any, error) {
	if d.wait(ctx, c) {
		answer := c.answer
		c.request, c.answer = Request{}, Answer{}
		c.state.Store(callQueued)
		d.calls.Put(c)
		return answer.Value, answer.Err
	}
	dropped := !c.wasSent() // and it never will be
	switch err := ctx.Err(); {
	case dropped && err != nil:
		return nil, err
	case dropped:
		return nil, &unsentError{fmt.Errorf("lockcore: all connections were in use: %w", NoAnswer(c.timeout))}
	case err != nil:
		return nil, errors.Join(err, ErrUnknown)
	}
	return nil, errors.Join(ErrUnknown, NoAnswer(c.timeout))
}

// wait reports whether a call is answered before its timeout and the end of ctx.
func (d *dispatcher) wait(ctx context.Context, c *call) bool {
	patience := c.timeout / 3
	c.timer.Reset(patience)
	defer c.timer.Stop()
	for grown := false; ; {
		select {
		case <-c.done:
			return true
		case <-c.timer.C:
			switch {
			case !grown:
				grown = true
				d.grow() //nolint:contextcheck // the connection outlives the call
				c.timer.Reset(c.timeout - patience)
				continue
			case c.wasSent():
				if left := c.timeout - (d.trust.now() - time.Duration(c.sent.Load())); left > 0 {
					c.timer.Reset(left)
					continue
				}
			}
		case <-ctx.Done():
		}
		select {
		case <-c.done:
			return true
		default:
			return false
		}
	}
}

// wasSent reports whether a call was sent. If not, it is dropped.
func (c *call) wasSent() bool {
	return !c.state.CompareAndSwap(callQueued, callDropped) && c.state.Load() == callSent
}

// grow sets up another connection for the calls that queue while all that work wait for answers. The
// calls stay in the queue, as one of the others may be free first. While no connection can be made,
// another one would not help.
func (d *dispatcher) grow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.queue) == 0 || !slices.ContainsFunc(d.all, (*connection).isSetUp) {
		return
	}
	for _, f := range d.free {
		if f.prepare(1) != nil {
			return
		}
	}
	if len(d.all) < maxConnections {
		f := d.make()
		f.replaced, f.failed = d.all[0].replaced, true // it is not a choice before it is set up
		d.all = append(slices.Clip(d.all), f)
		d.free = slices.Insert(d.free, 0, f)
		f.prepare(1)
	}
}

// prepared is called when a connection was set up, which may be free by now.
func (d *dispatcher) prepared() {
	d.mu.Lock()
	var f *connection
	if i, _ := d.usable(); i >= 0 && !d.closed && len(d.queue)+len(d.borrows) > 0 {
		f = d.take(i)
	}
	d.mu.Unlock()
	if f != nil {
		d.sendQueued(f)
	}
}

// borrow returns a channel that gets a connection which is set up, as soon as one is free, or nil
// if there is none. sendQueued returns the connection. withdraw must follow if it was not received.
func (d *dispatcher) borrow() chan *connection {
	lent := make(chan *connection, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch i, others := d.usable(); {
	case d.closed, i < 0 && !others:
		lent <- nil
	case i >= 0:
		lent <- d.take(i)
	default:
		d.borrows = append(d.borrows, lent)
	}
	return lent
}

// withdraw ends a borrow.
func (d *dispatcher) withdraw(lent chan *connection) {
	d.mu.Lock()
	i := slices.Index(d.borrows, lent)
	if i >= 0 {
		d.borrows = slices.Delete(d.borrows, i, i+1)
	}
	d.mu.Unlock()
	if i >= 0 {
		return
	}
	if f := <-lent; f != nil {
		d.sendQueued(f)
	}
}

// sendNow sends a request on the caller's goroutine. If the connection cannot be made, and others
// exist, the request becomes a call that queues for them.
func (d *dispatcher) sendNow(ctx context.Context, f *connection, r Request, timeout time.Duration) (Answer, *call) {
	limit := f.limit(ctx, timeout)
	f.single[0] = r
	answer := transfer(limit, f, f.single[:], nil)[0] //nolint:contextcheck // limit is a context of ctx
	f.single[0] = Request{}
	ended := limit.Err() != nil
	limit.stop()
	if f.failed && !ended && IsUnsent(answer.Err) {
		if c := d.newCall(r, timeout); d.passOn(f, []*call{c}) {
			return answer, c
		}
	}
	d.sendQueued(f) //nolint:contextcheck // the next batch is other callers'
	if answer.Err != nil && ctx.Err() != nil {
		answer = Answer{Err: errors.Join(ctx.Err(), answer.Err)}
	}
	return answer, nil
}

// sendQueued sends the queued calls, batch by batch, and then returns the connection.
func (d *dispatcher) sendQueued(f *connection) {
	if batch := d.next(f); batch != nil {
		go d.sendBatches(f, batch)
	}
}

func (d *dispatcher) sendBatches(f *connection, batch []*call) {
	for next := batch; next != nil; next = d.next(f) {
		if !d.sendBatch(f, next) {
			return
		}
	}
}

// sendBatch returns false if it has returned the connection.
func (d *dispatcher) sendBatch(f *connection, batch []*call) bool {
	longest := time.Duration(0)
	requests := make([]Request, len(batch))
	for i, c := range batch {
		requests[i] = c.request
		longest = max(longest, c.timeout)
	}
	limit := f.limit(context.Background(), longest)
	limit.waited = true
	// A caller may drop its call until the connection is ready.
	begun := false
	answers := transfer(limit, f, requests, func(i int) bool {
		begun = true
		batch[i].sent.Store(int64(d.trust.now()))
		return batch[i].state.CompareAndSwap(callQueued, callSent) || batch[i].state.Load() == callSent
	})
	ended := limit.Err() != nil
	limit.stop()
	if f.failed && !ended && !begun && d.passOn(f, batch) {
		return false
	}
	for i, c := range batch {
		c.answer = answers[i]
		c.done <- struct{}{}
	}
	return true
}

// passOn returns a connection that cannot be made, and queues its calls for the others. It
// returns false, and does nothing, if none of them is set up.
func (d *dispatcher) passOn(f *connection, batch []*call) bool {
	d.mu.Lock()
	i, others := d.usable()
	if d.closed || f.usable() || i < 0 && !others {
		d.mu.Unlock()
		return false
	}
	d.queue = slices.Concat(batch, d.queue)
	var idle *connection
	if i >= 0 {
		idle = d.take(i)
	} // otherwise, the connection that is set up is in use, and sends the queue next
	surplus := d.giveBack(f)
	d.mu.Unlock()
	if surplus != nil {
		surplus.close()
	}
	d.wg.Done()
	if idle != nil {
		d.sendQueued(idle)
	}
	return true
}

// next takes the first calls of the queue as the next batch, or returns the connection.
func (d *dispatcher) next(f *connection) []*call {
	d.mu.Lock()
	if d.lend(f) {
		d.mu.Unlock()
		return nil
	}
	var batch []*call
	n := 0
	for ; n < len(d.queue) && len(batch) < maxBatch; n++ {
		if c := d.queue[n]; c.state.Load() != callDropped {
			batch = append(batch, c)
		}
	}
	if d.queue = d.queue[n:]; len(d.queue) == 0 {
		d.queue = nil
	}
	if batch != nil {
		d.mu.Unlock()
		return batch
	}
	surplus := d.giveBack(f)
	d.mu.Unlock()
	if surplus != nil {
		surplus.close()
	}
	d.wg.Done()
	return nil
}

// lend gives a connection to the first borrower. If no connection can be lent any more, all
// borrowers get none. The caller holds mu.
func (d *dispatcher) lend(f *connection) bool {
	if len(d.borrows) == 0 {
		return false
	}
	if !d.closed && f.usable() {
		d.borrows[0] <- f
		d.borrows = d.borrows[1:]
		return true
	}
	if i, others := d.usable(); d.closed || i < 0 && !others {
		for _, b := range d.borrows {
			b <- nil
		}
		d.borrows = nil
	}
	return false
}

// giveBack makes a connection free. It returns the one to close if there is one too many. The
// caller holds mu.
func (d *dispatcher) giveBack(f *connection) (surplus *connection) {
	if f.failed {
		// It comes last, as the others may still be connected while no dial succeeds.
		d.free = slices.Insert(d.free, 0, f)
	} else {
		d.free = append(d.free, f)
	}
	if len(d.free) <= connections {
		return nil
	}
	first, made := -1, 0
	for i, c := range d.free {
		if c.isSetUp() {
			if made++; first < 0 {
				first = i
			}
		}
	}
	if d.closed || made <= connections {
		return nil // the others cost nothing, and their dials that do not return must not add up
	}
	surplus = d.free[first]
	d.free = slices.Delete(d.free, first, first+1)
	d.all = slices.DeleteFunc(slices.Clone(d.all), func(c *connection) bool { return c == surplus })
	return surplus
}

// transfer sends requests in one round trip and returns their answers. It omits requests
// that are not wanted when the connection is ready. If wanted is nil, all are sent.
func transfer(d *deadline, l *connection, requests []Request, wanted func(i int) bool) []Answer {
	answers := replicate(d, l, requests, wanted)
	// Unknown scripts are sent again, each once with its source. If another client flushes
	// the scripts in between, all of them are sent with their source the next time.
	for pass := range 2 {
		var again []int
		var resent []Request
		known := map[*Script]bool{}
		for i, r := range requests {
			if r.script == nil || !isNoScript(answers[i].Err) {
				continue
			}
			if !known[r.script] || pass > 0 {
				known[r.script] = true
				r = r.WithSource()
			}
			again, resent = append(again, i), append(resent, r)
		}
		if again == nil {
			break
		}
		d.nextPart()
		var still func(i int) bool
		if wanted != nil {
			still = func(i int) bool { return wanted(again[i]) }
		}
		for n, answer := range replicate(d, l, resent, still) {
			answers[again[n]] = answer
		}
	}
	return answers
}
