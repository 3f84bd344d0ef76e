package wire

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	connections = 4   // concurrent requests or batches
	maxBatch    = 128 // calls in one batch
)

// A dispatcher sends the calls of all goroutines of a Client. While a connection is free, a
// call is sent at once on its caller's goroutine. While all are in use, calls queue. The
// first free connection then sends them as one batch. A caller whose context ends returns at
// once. If the call was not sent before, it is never sent. If it was sent, its answer is
// ignored.
type dispatcher struct {
	mu     sync.Mutex
	free   []*connection // those that failed are first, the one used last is last
	queue  []*call       // empty while a connection is free
	closed bool
	all    []*connection
	wg     sync.WaitGroup // requests and batches in flight
	calls  sync.Pool      // *call, of callers that were answered
	failed func(Request, error)
}

// A call is one command and its state.
type call struct {
	request Request
	timeout time.Duration
	until   time.Time // the end of timeout
	state   atomic.Int32
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
	d.mu.Unlock()
	for _, f := range d.all {
		f.close()
	}
	d.wg.Wait()
}

// do sends one command and waits for its answer for the timeout, or until ctx ends. If the
// error is ErrUnknown, the command may have been applied.
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
	until := time.Now().Add(timeout)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	if last := len(d.free) - 1; last >= 0 {
		f := d.free[last]
		d.free = d.free[:last]
		d.wg.Add(1)
		d.mu.Unlock()
		return d.sendNow(ctx, f, r, until, timeout)
	}
	c := d.calls.Get().(*call)
	c.request, c.until, c.timeout = r, until, timeout
	d.queue = append(d.queue, c)
	d.mu.Unlock()
	if c.wait(ctx) {
		answer := c.answer
		c.request, c.answer = Request{}, Answer{}
		c.state.Store(callQueued)
		d.calls.Put(c)
		return answer.Value, answer.Err
	}
	dropped := c.state.CompareAndSwap(callQueued, callDropped) // never sent, and never will be
	switch err := ctx.Err(); {
	case dropped && err != nil:
		return nil, err
	case dropped:
		return nil, &unsentError{fmt.Errorf("lockcore: all connections were in use: %w", NoAnswer(timeout))}
	case err != nil:
		return nil, errors.Join(err, ErrUnknown)
	}
	return nil, errors.Join(ErrUnknown, NoAnswer(timeout))
}

// wait reports whether the call is answered before its timeout and the end of ctx.
func (c *call) wait(ctx context.Context) bool {
	c.timer.Reset(c.timeout)
	defer c.timer.Stop()
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	case <-c.timer.C:
	}
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// sendNow sends a request on the caller's goroutine.
func (d *dispatcher) sendNow(ctx context.Context, f *connection, r Request, until time.Time, timeout time.Duration) (any, error) {
	var one struct {
		requests [1]Request
		limit    deadline
	}
	one.requests[0] = r
	f.limit(ctx, &one.limit, until, timeout)
	answer := transfer(&one.limit, f, one.requests[:], nil)[0] //nolint:contextcheck // limit is a context of ctx
	one.limit.stop()
	d.sendQueued(f) //nolint:contextcheck // the next batch is other callers'
	if answer.Err != nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), answer.Err)
	}
	return answer.Value, answer.Err
}

// sendQueued sends the queued calls, batch by batch, and then returns the connection.
func (d *dispatcher) sendQueued(f *connection) {
	if batch := d.next(f); batch != nil {
		go func() {
			for next := batch; next != nil; next = d.next(f) {
				sendBatch(f, next)
			}
		}()
	}
}

func sendBatch(f *connection, batch []*call) {
	last := slices.MaxFunc(batch, func(a, b *call) int { return a.until.Compare(b.until) })
	var limit deadline
	f.limit(context.Background(), &limit, last.until, last.timeout)
	defer limit.stop()
	requests := make([]Request, len(batch))
	for i, c := range batch {
		requests[i] = c.request
	}
	// A caller may drop its call until the connection is ready.
	answers := transfer(&limit, f, requests, func(i int) bool {
		return batch[i].state.CompareAndSwap(callQueued, callSent)
	})
	for i, c := range batch {
		c.answer = answers[i]
		c.done <- struct{}{}
	}
}

// next takes the calls of the next batch, or returns the connection. The batch contains the
// first calls of the queue with similar timeouts, so that none waits for a connection much
// longer than for its answer.
func (d *dispatcher) next(f *connection) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var batch []*call
	n := 0
	for ; n < len(d.queue) && len(batch) < maxBatch; n++ {
		c := d.queue[n]
		if len(batch) > 0 && waitClass(c.timeout) != waitClass(batch[0].timeout) {
			break
		}
		if c.state.Load() != callDropped {
			batch = append(batch, c)
		}
	}
	if d.queue = d.queue[n:]; len(d.queue) == 0 {
		d.queue = nil
	}
	if batch == nil {
		if f.failed {
			// It comes last, as the others may still be connected while no dial succeeds.
			d.free = append([]*connection{f}, d.free...)
		} else {
			d.free = append(d.free, f)
		}
		d.wg.Done()
	}
	return batch
}

func waitClass(timeout time.Duration) int { return bits.Len64(uint64(timeout / time.Millisecond)) }

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
		for n, answer := range replicate(d, l, resent, nil) {
			answers[again[n]] = answer
		}
	}
	return answers
}
