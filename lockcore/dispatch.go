package lockcore

import (
	"context"
	"errors"
	"math/bits"
	"net"
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
	d := &dispatcher{failed: failed}
	for range flights {
		d.all = append(d.all, newLink(opt))
	}
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
		f.breakOff()
		_ = f.rdb.Close()
	}
	d.wg.Wait()
}

// do sends one command and waits for its answer, or for ctx. An error that is
// ErrUnknown leaves open whether the command was applied.
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
	c := &call{script: s, args: args, timeout: timeout}
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
		return d.direct(ctx, f, c)
	}
	c.done = make(chan struct{})
	d.queue = append(d.queue, c)
	d.mu.Unlock()
	select {
	case <-c.done:
		return c.reply, c.err
	case <-ctx.Done():
		if c.state.CompareAndSwap(callQueued, callDropped) {
			return nil, ctx.Err() // never sent
		}
		return nil, errors.Join(ctx.Err(), ErrUnknown)
	}
}

// direct sends a call on the caller's goroutine.
func (d *dispatcher) direct(ctx context.Context, f *link, c *call) (any, error) {
	f.during(ctx, func() { send(ctx, f.rdb, []*call{c}) })
	f.failed = isDry(c.err)
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
				send(context.Background(), f.rdb, batch)
				f.failed = isDry(batch[0].err)
				for _, c := range batch {
					close(c.done)
				}
			}
		}()
	}
}

// next takes the calls that go out together, or gives the flight back: those at
// the head of the queue that may wait about as long, so that none is given up
// early for another's sake.
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

// send sends calls in one round trip and fills in their answers.
func send(ctx context.Context, rdb *redis.Client, calls []*call) {
	timeout := calls[0].timeout
	args := make([][]any, len(calls))
	for i, c := range calls {
		args[i] = c.args
		timeout = min(timeout, c.timeout)
	}
	replies := pipeline(ctx, rdb, timeout, args)
	sendWhole(ctx, rdb, calls, replies, timeout)
	for i, c := range calls {
		c.reply, c.err = replies[i].value, replies[i].err
	}
}

// sendWhole sends with their source the scripts that the server did not know.
func sendWhole(ctx context.Context, rdb *redis.Client, sent []*call, replies []reply, timeout time.Duration) {
	var again []int
	var args [][]any
	for i, c := range sent {
		if c.script != nil && isNoScript(replies[i].err) {
			again = append(again, i)
			args = append(args, c.script.whole(c.args))
		}
	}
	if len(again) == 0 {
		return
	}
	for k, r := range pipeline(ctx, rdb, timeout, args) {
		replies[again[k]] = r
	}
}

type reply struct {
	value any
	err   error
}

// pipeline sends commands in one round trip and waits no longer than timeout.
func pipeline(ctx context.Context, rdb *redis.Client, timeout time.Duration, args [][]any) []reply {
	bounded := withDeadline(ctx, time.Now().Add(timeout))
	replies := make([]reply, len(args))
	if len(args) == 1 {
		cmd := redis.NewCmd(bounded, args[0]...)
		_ = rdb.Process(bounded, cmd)
		replies[0] = readReply(cmd)
		return replies
	}
	pipe := rdb.Pipeline()
	cmds := make([]*redis.Cmd, len(args))
	for i, a := range args {
		cmds[i] = redis.NewCmd(bounded, a...)
		_ = pipe.Process(bounded, cmds[i])
	}
	_, _ = pipe.Exec(bounded)
	for i, cmd := range cmds {
		replies[i] = readReply(cmd)
	}
	return replies
}

// deadline is a context that has a deadline and no timer: go-redis asks for the
// deadline and sets it on the connection, nobody waits for Done.
type deadline struct {
	context.Context
	at time.Time
}

func withDeadline(ctx context.Context, at time.Time) context.Context { return deadline{ctx, at} }

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func readReply(cmd *redis.Cmd) reply {
	value, err := cmd.Result()
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return reply{value: value}
	case isServerError(err), isUnsent(err):
		return reply{err: err}
	default:
		return reply{err: errors.Join(ErrUnknown, err)}
	}
}

// isServerError: the server answered, with a refusal.
func isServerError(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}

// isUnsent: no connection was had, so nothing was sent.
func isUnsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// isDry: the flight has no connection, and perhaps cannot get one.
func isDry(err error) bool {
	return err != nil && (!isServerError(err) || redis.HasErrorPrefix(err, "max number of clients"))
}

// isPassing: the server will think better of it by itself, and has done nothing.
func isPassing(err error) bool {
	for _, prefix := range []string{"LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "max number of clients"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// isShort: the server lacks memory, disk or replicas, and has done nothing: a
// script's first write is refused or none. Nobody knows for how long.
func isShort(err error) bool {
	for _, prefix := range []string{"OOM", "MISCONF", "NOREPLICAS"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// mayRetry: worth another try with the same attempt.
func mayRetry(err error) bool {
	return errors.Is(err, ErrUnknown) || isUnsent(err) || isPassing(err)
}
