package lockcore

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/wire"
)

// An attempt is one try to acquire a lock, from its first request to its last. Its number
// is never used again. So the server can tell a late request from a new one, and a
// repeated request is harmless.
type attempt struct {
	c      *Client
	kind   kind
	queued queueKind // kind, if attempts of it can queue; else nil
	keys   *lockKeys
	terms  *leaseTerms
	number uint64
	value  string
	place  string // its last score in the queue, to join again at

	trusted bool // the value says that PUBLISH counts this process as a receiver

	endedToken uint64 // as sent with the last acquire, see owners

	// unanswered: an acquire has no answer and may still arrive. mayBeStored: the server
	// may have stored the attempt, so it has to be withdrawn.
	unanswered, mayBeStored atomic.Bool

	// grantedAt is the time at which a grant message for the attempt arrived, plus one;
	// 0 means none.
	grantedAt atomic.Int64

	// wake wakes the waiter after look or endsIn was set. look: send a look now. endsIn:
	// the attempt is the head of the queue, and the lock ends in that many nanoseconds
	// unless it is renewed; 0 means no message.
	wake        chan struct{}
	look        atomic.Bool
	endsIn      atomic.Int64
	warnedNoTTL bool
}

// The answers of mutex_acquire and owned_acquire.
const (
	answerHeld = iota + 1
	answerHead
	answerQueued
	answerBusy
	answerNotQueued
	answerBuried
	answerWrongKind
	answerUpgrade
)

type acquireReply struct {
	code   int64
	token  uint64        // held
	left   time.Duration // head, queued, busy; negative: no TTL
	place  string        // head, queued
	holder string        // head, queued, busy; empty: none
}

// unswept is the left of a lock that is free and has a queue: the script removed as many
// dead waiters as one call may, and the next call continues.
const unswept = -2 * time.Millisecond

const (
	modeTry  = "try"
	modeJoin = "join"
	modeLook = "look"
)

func (c *Client) newAttempt(k kind, keys *lockKeys, terms *leaseTerms, waits bool) *attempt {
	n, trusted := c.attempts.Add(1), waits && c.wire.Messages(keys.name).Trusted()
	a := &attempt{
		c: c, kind: k, keys: keys, terms: terms, number: n, trusted: trusted,
		value: k.value(c.process, n, trusted, terms.identity),
	}
	if waits {
		a.wake = make(chan struct{}, 1)
	}
	return a
}

// sendAcquire sends one acquire. t0 is read before it is sent.
func (a *attempt) sendAcquire(ctx context.Context, mode string, timeout time.Duration) (r acquireReply, t0 time.Duration, err error) {
	if mode == modeJoin && a.place != "" {
		mode = a.place
	}
	req := a.queued.acquire(a, mode)
	t0 = a.c.clock.Now()
	answer, err := a.c.wire.Send(ctx, a.keys.name, req, timeout)
	readiness.Answered(ctx, err)
	if err != nil {
		if errors.Is(err, ErrUnknown) {
			a.unanswered.Store(true)
		}
		if wire.MayBeApplied(err) {
			a.mayBeStored.Store(true)
		}
		return r, t0, err
	}
	r, ok := readAcquire(answer)
	if !ok {
		a.mayBeStored.Store(true)
		return r, t0, req.OddReply(answer)
	}
	if r.code <= answerQueued {
		a.mayBeStored.Store(true)
	}
	if r.code == answerHead || r.code == answerQueued {
		a.place = r.place
	}
	return r, t0, nil
}

func readAcquire(answer any) (r acquireReply, ok bool) {
	list, _ := answer.([]any)
	if len(list) == 0 {
		return r, false
	}
	code, _ := list[0].(int64)
	r.code = code
	switch {
	case code == answerHeld && len(list) == 2:
		token, err := strconv.ParseUint(wire.Text(list[1]), 10, 64)
		r.token = token
		return r, err == nil && token > 0
	case code == answerBusy && len(list) == 3, (code == answerHead || code == answerQueued) && len(list) == 4:
		left, isInt := list[1].(int64)
		r.left, r.holder = time.Duration(left)*time.Millisecond, wire.Text(list[len(list)-1])
		if code != answerBusy {
			r.place = wire.Text(list[2])
		}
		return r, isInt
	case code >= answerNotQueued && code <= answerUpgrade && len(list) == 1:
		return r, true
	}
	return r, false
}

// retryAcquire sends an acquire and retries it until it is answered, ctx ends, or within
// has passed. If within is 0 it has no limit, and also retries while the server lacks
// memory, disk space or replicas, so that a waiter keeps its place during such a fault.
func (a *attempt) retryAcquire(ctx context.Context, mode string, within time.Duration) (r acquireReply, t0 time.Duration, err error) {
	retryable := wire.MayRetry
	if within == 0 {
		retryable = wire.MayRetryLater
	}
	retry := a.c.newRetry(a.terms.timeout(), within)
	err = retry.Do(ctx, retryable, func() (err error) {
		for {
			r, t0, err = a.sendAcquire(ctx, mode, retry.Timeout())
			if err != nil || r.left != unswept {
				return err
			}
		}
	})
	return r, t0, err
}

// bury returns the TTL (ms) of the attempt's tombstone.
func (a *attempt) bury() int64 { return millis(max(a.terms.ttl, tombTTL)) }

// leave releases the attempt, or removes it from the queue. The result is greater than 0
// if it held the lock. If an acquire of the attempt may still arrive, the script also
// writes a tombstone.
func (a *attempt) leave(ctx context.Context, timeout time.Duration) (int64, error) {
	bury := a.unanswered.Load()
	if bury {
		a.c.mu.Lock()
		a.c.pendingTombs[a.number] = struct{}{}
		a.c.mu.Unlock()
	}
	n, err := a.sendLeave(ctx, bury, timeout)
	if bury && err == nil {
		a.c.mu.Lock()
		delete(a.c.pendingTombs, a.number)
		a.c.mu.Unlock()
	}
	return n, err
}

// sendLeave sends one leave. If it granted the lock to a waiter, the Client checks the grant
// when it ends.
func (a *attempt) sendLeave(ctx context.Context, bury bool, timeout time.Duration) (int64, error) {
	req := a.kind.leave(a, bury)
	answer, err := a.c.wire.Send(ctx, a.keys.name, req, timeout)
	if list, ok := answer.([]any); ok && len(list) == 2 {
		in, err := req.Number(list[1], err)
		if err != nil {
			return 0, err
		}
		a.c.checkLater(a, time.Duration(in)*time.Millisecond)
		answer = list[0]
	}
	return req.Number(answer, err)
}

// renewal returns the request that extends the attempt's hold to its TTL.
func (a *attempt) renewal() wire.Request { return a.kind.renewal(a) }
