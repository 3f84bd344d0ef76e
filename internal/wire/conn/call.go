package conn

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// A call is a command on its way. Its state changes in this file only:
//
//	queued ──write──► written ──answered──► answered
//	   │  └───────────answered─────────────────▲
//	   └──leave──► left ◄──leave── written
//
// A call that is answered goes back to its Line. A call that was left does not, as its pipe may still have it.
type call struct {
	command Command
	timeout time.Duration
	until   time.Duration // end of timeout, by Line.Now
	state   atomic.Int32
	answer  Answer
	done    chan struct{} // receives a value after answer is set
	timer   *time.Timer   // of the caller
}

const (
	callQueued = iota
	callWritten
	callAnswered
	callLeft // by its caller
)

func newCall() any { return &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)} }

// write records that the call is about to be written. It returns false if the caller has left.
func (c *call) write(ticks time.Duration) bool {
	if !c.state.CompareAndSwap(callQueued, callWritten) {
		return false
	}
	c.command.stampAt(ticks)
	return true
}

// answered gives the answer to the caller, unless the caller has left. Nothing else may use the call afterwards.
func (c *call) answered(a Answer) {
	if c.state.CompareAndSwap(callWritten, callAnswered) || c.state.CompareAndSwap(callQueued, callAnswered) {
		c.answer = a
		c.done <- struct{}{}
	}
}

// await waits for the answer, until ctx ends or the time is over. The caller has then left.
func (c *call) await(ctx context.Context, unsent func(error) error) (a Answer, left bool) {
	select {
	case <-c.done:
		return c.answer, false
	case <-c.timer.C:
	case <-ctx.Done():
	}
	if a, left = c.leave(ctx, unsent); !left {
		<-c.done
		a = c.answer
	}
	return a, left
}

// leave ends the wait of the caller. It returns false if the answer is there.
func (c *call) leave(ctx context.Context, unsent func(error) error) (a Answer, left bool) {
	why := ctx.Err()
	late := error(&NoAnswerError{c.timeout})
	if why != nil {
		if late = context.Cause(ctx); errors.Is(why, context.DeadlineExceeded) && late != why { //nolint:errorlint // the same error
			why = nil // the cause says it
		}
	}
	if c.state.CompareAndSwap(callQueued, callLeft) {
		return Answer{Err: errors.Join(why, &UnsentError{unsent(late)})}, true
	}
	if c.state.CompareAndSwap(callWritten, callLeft) {
		return Answer{Err: errors.Join(why, ErrUnknown, late)}, true
	}
	return Answer{}, false
}

// reset makes a call usable again that was answered.
func (c *call) reset() {
	c.timer.Stop()
	c.command, c.answer = Command{}, Answer{}
	c.state.Store(callQueued)
}

func (c *call) hasLeft() bool { return c.state.Load() == callLeft }

// A queue has calls in their order. It forgets calls that were left before it doubles.
type queue struct {
	calls []*call
	limit int
}

// leastQueue is the length from which a queue looks for calls that were left.
const leastQueue = 1024

func (q *queue) add(calls ...*call) {
	if len(q.calls) >= max(q.limit, leastQueue) {
		q.calls = slices.DeleteFunc(q.calls, (*call).hasLeft)
		q.limit = 2 * len(q.calls)
	}
	q.calls = append(q.calls, calls...)
}

// take returns all calls, and leaves the queue empty.
func (q *queue) take() []*call {
	calls := q.calls
	q.calls = nil
	return calls
}

// fail answers calls with an error.
func fail(calls []*call, err error) {
	for _, c := range calls {
		c.answered(Answer{Err: err})
	}
}

// until returns the calls that came until a time, and keeps the others.
func (q *queue) until(at time.Duration) (calls []*call) {
	n := slices.IndexFunc(q.calls, func(c *call) bool { return c.until-c.timeout > at })
	if n < 0 {
		return q.take()
	}
	calls, q.calls = slices.Clone(q.calls[:n]), slices.Delete(q.calls, 0, n)
	return calls
}

// wanted reports whether a caller waits.
func (q *queue) wanted() bool {
	return slices.ContainsFunc(q.calls, func(c *call) bool { return !c.hasLeft() })
}

// leastRedial is the shortest time between two dials.
const leastRedial = 5 * time.Millisecond

// hurry returns how long the calls can wait between two dials: a lease with a TTL of 200 ms has other needs than one
// with 10 s.
func (q *queue) hurry() (longest time.Duration) {
	for _, c := range q.calls {
		if !c.hasLeft() && (longest == 0 || c.timeout/32 < longest) {
			longest = c.timeout / 32
		}
	}
	return max(longest, leastRedial)
}
