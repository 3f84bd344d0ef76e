package conn

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// A call is one command of a caller. Only this file changes its state:
//
//	queued ──markWritten──► written ──complete──► completed
//	   │  └───────────────complete───────────────────▲
//	   └──abandon──► abandoned ◄──abandon── written
//
// A completed call returns to the pool of its Line. An abandoned one does not, because its pipe may still refer to it.
type call struct {
	command  Command
	timeout  time.Duration
	deadline time.Duration // end of timeout, by Options.Now
	state    atomic.Int32
	answer   Answer
	done     chan struct{} // receives a value when answer is set
	timer    *time.Timer   // fires at deadline, for the caller
}

const (
	callQueued = iota
	callWritten
	callCompleted
	callAbandoned
)

// newCall makes a call for the pool of a Line, which sets the timer.
func newCall() any { return &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)} }

// markWritten records that the call is about to be written. It returns false after the caller has abandoned the call.
func (c *call) markWritten(stamp time.Duration) bool {
	if !c.state.CompareAndSwap(callQueued, callWritten) {
		return false
	}
	c.command.stampAt(stamp)
	return true
}

// complete passes the answer to the caller, unless the call is abandoned. Only the caller may use the call afterwards.
func (c *call) complete(a Answer) {
	if c.state.CompareAndSwap(callWritten, callCompleted) || c.state.CompareAndSwap(callQueued, callCompleted) {
		c.answer = a
		c.done <- struct{}{}
	}
}

func failAll(calls []*call, err error) {
	for _, c := range calls {
		c.complete(Answer{Err: err})
	}
}

// await waits for the answer. It abandons the call when ctx ends, or after the timeout. unsent adds the reason to the
// error of a call that was never written.
func (c *call) await(ctx context.Context, unsent func(error) error) (a Answer, abandoned bool) {
	select {
	case <-c.done:
		return c.answer, false
	case <-c.timer.C:
	case <-ctx.Done():
	}
	if a, abandoned = c.abandon(ctx, unsent); !abandoned {
		<-c.done
		a = c.answer
	}
	return a, abandoned
}

// abandon ends the wait of the caller. It returns false if the call is completed.
func (c *call) abandon(ctx context.Context, unsent func(error) error) (a Answer, abandoned bool) {
	ended := ctx.Err() // nil after the timeout
	late := error(&NoAnswerError{c.timeout})
	if ended != nil {
		if late = context.Cause(ctx); errors.Is(ended, context.DeadlineExceeded) && late != ended { //nolint:errorlint // the same error
			ended = nil // the cause contains it
		}
	}
	if c.state.CompareAndSwap(callQueued, callAbandoned) {
		return Answer{Err: errors.Join(ended, &UnsentError{unsent(late)})}, true
	}
	if c.state.CompareAndSwap(callWritten, callAbandoned) {
		return Answer{Err: errors.Join(ended, ErrUnknown, late)}, true
	}
	return Answer{}, false
}

func (c *call) reset() {
	c.timer.Stop()
	c.command, c.answer = Command{}, Answer{}
	c.state.Store(callQueued)
}

func (c *call) isAbandoned() bool { return c.state.Load() == callAbandoned }

// A slot stands for a reply that a pipe expects.
type slot struct {
	call  *call // nil for a command of the pipe itself
	kind  slotKind
	named bool
	id    uint64
	sent  time.Duration
}

type slotKind uint8

const (
	slotCall slotKind = iota
	slotAsking
	slotMark
	slotWait
	slotProof
)

type reply struct {
	slot
	Answer
}

// A queue contains calls in their order. It drops abandoned calls whenever its length has doubled.
type queue struct {
	calls []*call
	limit int // length at which abandoned calls are dropped next
}

// minQueue is the least length at which a queue drops abandoned calls.
const minQueue = 1024

func (q *queue) add(calls ...*call) {
	if len(q.calls) >= max(q.limit, minQueue) {
		q.calls = slices.DeleteFunc(q.calls, (*call).isAbandoned)
		q.limit = 2 * len(q.calls)
	}
	q.calls = append(q.calls, calls...)
}

func (q *queue) takeAll() []*call {
	calls := q.calls
	q.calls = nil
	return calls
}

// takeUntil removes and returns the calls that began until a time.
func (q *queue) takeUntil(end time.Duration) (calls []*call) {
	n := slices.IndexFunc(q.calls, func(c *call) bool { return c.deadline-c.timeout > end })
	if n < 0 {
		return q.takeAll()
	}
	calls, q.calls = slices.Clone(q.calls[:n]), slices.Delete(q.calls, 0, n)
	return calls
}

func (q *queue) hasCaller() bool {
	return slices.ContainsFunc(q.calls, func(c *call) bool { return !c.isAbandoned() })
}

const minRedialPause = 5 * time.Millisecond

// redialPause returns the longest acceptable pause between two dials. It is a part of the shortest timeout: a lease
// with a TTL of 200 ms needs a connection sooner than a lease with 10 s.
func (q *queue) redialPause() (pause time.Duration) {
	for _, c := range q.calls {
		if !c.isAbandoned() && (pause == 0 || c.timeout/32 < pause) {
			pause = c.timeout / 32
		}
	}
	return max(pause, minRedialPause)
}
