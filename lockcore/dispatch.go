package lockcore

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

// A dispatcher sends the calls of all goroutines of a Client. While a connection
// is free a call goes out at once, on the caller's goroutine; the calls that come
// while all are taken go out together, as one pipeline, by whoever is done first.
// A caller whose context ends returns at once: its call is then broken off, or
// goes on behind, or is never sent if it had not been yet.
type dispatcher struct {
	mu     sync.Mutex
	free   []*link // flights; the one used last is at the end, at the front those that failed
	queue  []*call // empty while a flight is free
	closed bool
	all    []*link
	wg     sync.WaitGroup // flights under way
	failed func(*script, error)
}

// A call is one command on its way.
type call struct {
	script  *script // nil for a plain command
	args    []any
	timeout time.Duration
	until   time.Time // when timeout is over
	state   atomic.Int32
	done    chan struct{}
	reply   any
	err     error
}

const (
	callQueued = iota
	callSent
	callDropped
)

// newDispatcher makes a dispatcher that tells failed of each call that fails.
func newDispatcher(opt redis.Options, failed func(*script, error)) *dispatcher {
	d := &dispatcher{failed: failed, all: newLinks(flights, opt)}
	d.free = append(d.free, d.all...)
	return d
}

// close breaks off what is under way and answers the rest with ErrClosed.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	for _, c := range d.queue {
		c.err = ErrClosed
		close(c.done)
	}
	d.queue = nil
	d.mu.Unlock()
	for _, f := range d.all {
		f.close()
	}
	d.wg.Wait()
}

// do sends one command and waits for its answer for so long, or until ctx ends. An
// error that is ErrUnknown leaves open whether the command was applied.
func (d *dispatcher) do(ctx context.Context, s *script, timeout time.Duration, args []any) (any, error) {
	answer, err := d.send(ctx, s, timeout, args)
	if err != nil && (errors.Is(err, ErrUnknown) || isServerError(err) || isUnsent(err)) {
		d.failed(s, err)
	}
	return answer, err
}

func (d *dispatcher) send(ctx context.Context, s *script, timeout time.Duration, args []any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{script: s, args: args, until: time.Now().Add(timeout), timeout: timeout}
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
		return c.reply, c.err
	case <-bounded.Done():
	}
	dropped := c.state.CompareAndSwap(callQueued, callDropped) // never sent, and never will be
	switch err := ctx.Err(); {
	case dropped && err != nil:
		return nil, err
	case dropped:
		return nil, &unsentError{fmt.Errorf("lockcore: none was free within %s", timeout)}
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
func (d *dispatcher) direct(ctx, bounded context.Context, f *link, c *call) (any, error) {
	transfer(bounded, f, []*call{c})
	d.land(f) //nolint:contextcheck // the next batch is other callers'
	if c.err != nil && ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), c.err)
	}
	return c.reply, c.err
}

// land gives a flight back, or lets it take off with what has queued up.
func (d *dispatcher) land(f *link) {
	if batch := d.next(f); batch != nil {
		go func() {
			for ; batch != nil; batch = d.next(f) {
				last := slices.MaxFunc(batch, func(a, b *call) int { return a.until.Compare(b.until) })
				ctx, cancel := last.bind(context.Background())
				transfer(ctx, f, batch)
				cancel()
				for _, c := range batch {
					close(c.done)
				}
			}
		}()
	}
}

// next takes the calls that go out together, or gives the flight back: those at
// the head of the queue that may wait about as long, so that none waits for a
// connection much longer than for its answer.
func (d *dispatcher) next(f *link) []*call {
	d.mu.Lock()
	defer d.mu.Unlock()
	var batch []*call
	n := 0
	for ; n < len(d.queue) && len(batch) < maxBatch; n++ {
		c := d.queue[n]
		if len(batch) > 0 && waitClass(c.timeout) != waitClass(batch[0].timeout) {
			break
		}
		if c.state.CompareAndSwap(callQueued, callSent) {
			batch = append(batch, c)
		}
	}
	if d.queue = d.queue[n:]; len(d.queue) == 0 {
		d.queue = nil
	}
	if batch == nil {
		if f.failed {
			// Another may have a connection, when no more are to be had.
			d.free = append([]*link{f}, d.free...)
		} else {
			d.free = append(d.free, f)
		}
		d.wg.Done()
	}
	return batch
}

func waitClass(timeout time.Duration) int { return bits.Len64(uint64(timeout / time.Millisecond)) }

// transfer sends calls in one round trip and fills in their answers.
func transfer(ctx context.Context, l *link, calls []*call) {
	commands := make([][]any, len(calls))
	for i, c := range calls {
		commands[i] = c.args
	}
	for i, r := range l.do(ctx, commands) {
		calls[i].reply, calls[i].err = r.value, r.err
	}
	// Scripts that the server did not know are sent again, each with its source once.
	// If others flush scripts in between, all have their source the next time.
	for pass := range 2 {
		var again []*call
		known := map[*script]bool{}
		commands = commands[:0]
		for _, c := range calls {
			if c.script == nil || !isNoScript(c.err) {
				continue
			}
			again = append(again, c)
			if known[c.script] && pass == 0 {
				commands = append(commands, c.args)
				continue
			}
			known[c.script] = true
			commands = append(commands, c.script.whole(c.args))
		}
		if again == nil {
			return
		}
		for i, r := range l.do(ctx, commands) {
			again[i].reply, again[i].err = r.value, r.err
		}
	}
}
