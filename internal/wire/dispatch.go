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
	flights  = 4   // requests or pipelines under way at once
	maxBatch = 128 // calls in one pipeline
)

// A Dispatcher sends the calls of all goroutines of a Client. While a connection
// is free a call goes out at once, on the caller's goroutine; the calls that come
// while all are taken go out together, as one pipeline, by whoever is done first.
// A caller whose context ends returns at once: its call is then broken off, or
// goes on behind, or is never sent if it had not been yet.
type Dispatcher struct {
	mu     sync.Mutex
	free   []*Link // flights; the one used last is at the end, at the front those that failed
	queue  []*call // empty while a flight is free
	closed bool
	all    []*Link
	wg     sync.WaitGroup // flights under way
	failed func(Request, error)
}

// A call is one command on its way.
type call struct {
	request Request
	timeout time.Duration
	until   time.Time // when timeout is over
	state   atomic.Int32
	done    chan struct{}
	answer  Answer
}

const (
	callQueued = iota
	callSent
	callDropped
)

// NewDispatcher makes a Dispatcher that tells failed of each call that fails.
func NewDispatcher(opt redis.Options, failed func(Request, error)) *Dispatcher {
	d := &Dispatcher{failed: failed, all: NewLinks(flights, opt)}
	d.free = append(d.free, d.all...)
	return d
}

// Close breaks off what is under way and answers the rest with ErrClosed.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	for _, c := range d.queue {
		c.answer.Err = ErrClosed
		close(c.done)
	}
	d.queue = nil
	d.mu.Unlock()
	for _, f := range d.all {
		f.Close()
	}
	d.wg.Wait()
}

// Do sends one command and waits for its answer for so long, or until ctx ends. An
// error that is ErrUnknown leaves open whether the command was applied.
func (d *Dispatcher) Do(ctx context.Context, r Request, timeout time.Duration) (any, error) {
	answer, err := d.send(ctx, r, timeout)
	if err != nil && (errors.Is(err, ErrUnknown) || IsRefused(err) || IsUnsent(err)) {
		d.failed(r, err)
	}
	return answer, err
}

func (d *Dispatcher) send(ctx context.Context, r Request, timeout time.Duration) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{request: r, until: time.Now().Add(timeout), timeout: timeout}
	bounded, cancel := c.bind(ctx)
	defer cancel()
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
		return d.direct(ctx, bounded, f, c)
	}
	c.done = make(chan struct{})
	d.queue = append(d.queue, c)
	d.mu.Unlock()
	select {
	case <-c.done:
		return c.answer.Value, c.answer.Err
	case <-bounded.Done():
	}
	dropped := c.state.CompareAndSwap(callQueued, callDropped) // never sent, and never will be
	switch err := ctx.Err(); {
	case dropped && err != nil:
		return nil, err
	case dropped:
		return nil, &unsentError{fmt.Errorf("none was free: %w", context.Cause(bounded))}
	case err != nil:
		return nil, errors.Join(err, ErrUnknown)
	}
	return nil, errors.Join(ErrUnknown, context.Cause(bounded))
}

// bind bounds ctx by the time that the call may take.
func (c *call) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadlineCause(ctx, c.until, &noAnswerError{c.timeout})
}

// direct sends a call on the caller's goroutine.
func (d *Dispatcher) direct(ctx, bounded context.Context, f *Link, c *call) (any, error) {
	c.answer = Transfer(bounded, f, []Request{c.request})[0]
	d.land(f) //nolint:contextcheck // the next batch is other callers'
	if c.answer.Err != nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), c.answer.Err)
	}
	return c.answer.Value, c.answer.Err
}

// land gives a flight back, or lets it take off with what has queued up.
func (d *Dispatcher) land(f *Link) {
	if batch := d.next(f); batch != nil {
		go func() {
			for ; batch != nil; batch = d.next(f) {
				last := slices.MaxFunc(batch, func(a, b *call) int { return a.until.Compare(b.until) })
				ctx, cancel := last.bind(context.Background())
				requests := make([]Request, len(batch))
				for i, c := range batch {
					requests[i] = c.request
				}
				// Until there is a connection its caller may drop a call.
				answers := transfer(ctx, f, requests, func(i int) bool {
					return batch[i].state.CompareAndSwap(callQueued, callSent)
				})
				cancel()
				for i, c := range batch {
					c.answer = answers[i]
					close(c.done)
				}
			}
		}()
	}
}

// next takes the calls that go out together, or gives the flight back: those at
// the head of the queue that may wait about as long, so that none waits for a
// connection much longer than for its answer.
func (d *Dispatcher) next(f *Link) []*call {
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
			// Another may have a connection, when no more are to be had.
			d.free = append([]*Link{f}, d.free...)
		} else {
			d.free = append(d.free, f)
		}
		d.wg.Done()
	}
	return batch
}

func waitClass(timeout time.Duration) int { return bits.Len64(uint64(timeout / time.Millisecond)) }

// Transfer sends requests in one round trip and returns their answers.
func Transfer(ctx context.Context, l *Link, requests []Request) []Answer {
	return transfer(ctx, l, requests, nil)
}

// transfer leaves out what is no longer wanted when there is a connection.
func transfer(ctx context.Context, l *Link, requests []Request, wanted func(i int) bool) []Answer {
	commands := make([][]any, len(requests))
	for i, r := range requests {
		commands[i] = r.args
	}
	answers := l.do(ctx, commands, wanted)
	// Scripts that the server did not know are sent again, each with its source once.
	// If others flush scripts in between, all have their source the next time.
	for pass := range 2 {
		var again []int
		known := map[*Script]bool{}
		commands = commands[:0]
		for i, r := range requests {
			if r.script == nil || !isNoScript(answers[i].Err) {
				continue
			}
			again = append(again, i)
			if known[r.script] && pass == 0 {
				commands = append(commands, r.args)
				continue
			}
			known[r.script] = true
			commands = append(commands, r.withSource())
		}
		if again == nil {
			break
		}
		for n, answer := range l.do(ctx, commands, nil) {
			answers[again[n]] = answer
		}
	}
	return answers
}
