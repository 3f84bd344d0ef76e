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

// An attempt is one wish for a lock, from the first request to the last. Its
// number is never used again, so that a request that arrives late can be told
// from a new one, and a repeated one is harmless.
type attempt struct {
	c      *Client
	kind   kind
	line   lineKind // the same, if it is one that stands in line
	keys   *lockKeys
	terms  *leaseTerms
	number uint64
	value  string
	place  string // where it stood in line, to be taken up again

	trusted bool // its value says that PUBLISH's count of receivers is true

	ended uint64 // what the last acquire said of the owner's tokens, see owners

	// open: some request was sent and has no answer. owes: something of this
	// attempt may stand at the server, and is to be taken back.
	open, owes atomic.Bool

	// grantedAt is when it was heard that the lock is granted to this attempt, plus
	// one so that 0 is never.
	grantedAt atomic.Int64

	// wake tells a waiter of look (look now) or left (it is head of the line now
	// and the lock ends by itself in so many ns; 0: not told).
	wake   chan struct{}
	look   atomic.Bool
	left   atomic.Int64
	warned bool // of a lock without TTL
}

// The answers of mutex_acquire and owned_acquire.
const (
	answerHeld = iota + 1
	answerHead
	answerQueued
	answerBusy
	answerGone
	answerBuried
	answerWrongKind
	answerUpgrade
)

type acquireReply struct {
	code   int64
	token  uint64        // held
	left   time.Duration // head, queued, busy; negative: no TTL
	place  string        // head, queued
	holder string        // head, queued, busy; empty: nobody, for now
}

// unswept is what is left of a lock that is free although there is a line: more
// dead waiters stood in front than one script passes over. Asking again goes on.
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

// ask sends one acquire. t0 was read before it was sent.
func (a *attempt) ask(ctx context.Context, mode string, timeout time.Duration) (r acquireReply, t0 time.Duration, err error) {
	if mode == modeJoin && a.place != "" {
		mode = a.place // where it stood before
	}
	req := a.line.acquire(a, mode)
	t0 = a.c.clock.Now()
	answer, err := a.c.wire.Send(ctx, req, timeout)
	readiness.Answered(ctx, err)
	if err != nil {
		if errors.Is(err, ErrUnknown) {
			a.open.Store(true)
		}
		if wire.MayBeApplied(err) {
			a.owes.Store(true)
		}
		return r, t0, err
	}
	r, ok := readAcquire(answer)
	if !ok {
		a.owes.Store(true)
		return r, t0, req.OddReply(answer)
	}
	if r.code <= answerQueued {
		a.owes.Store(true)
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
	case code >= answerGone && code <= answerUpgrade && len(list) == 1:
		return r, true
	}
	return r, false
}

// askUntil asks until there is an answer, ctx ends, or patience does (0: never;
// who stands in line also waits out that the server is short of something).
func (a *attempt) askUntil(ctx context.Context, mode string, patience time.Duration) (r acquireReply, t0 time.Duration, err error) {
	worthIt := wire.MayRetry
	if patience == 0 {
		worthIt = wire.MayRetryLater
	}
	retry := a.c.newRetry(a.terms.timeout(), patience)
	err = retry.Do(ctx, worthIt, func() (err error) {
		for {
			r, t0, err = a.ask(ctx, mode, retry.Timeout())
			if err != nil || r.left != unswept {
				return err
			}
		}
	})
	return r, t0, err
}

// bury is how long (ms) the tombstone of an attempt stands.
func (a *attempt) bury() int64 { return millis(max(a.terms.ttl, tombTTL)) }

// leave gives the attempt back: 1 it was ours, 0 it was not. If an acquire of it was
// not answered, and may arrive yet, that leaves a tombstone.
func (a *attempt) leave(ctx context.Context, timeout time.Duration) (int64, error) {
	bury := a.open.Load()
	if bury {
		a.c.mu.Lock()
		a.c.unburied[a.number] = struct{}{}
		a.c.mu.Unlock()
	}
	req := a.kind.leave(a, bury)
	answer, err := a.c.wire.Send(ctx, req, timeout)
	n, err := req.Number(answer, err)
	if bury && err == nil {
		a.c.mu.Lock()
		delete(a.c.unburied, a.number)
		a.c.mu.Unlock()
	}
	return n, err
}

// renewal is the script call that extends the attempt's hold.
func (a *attempt) renewal() wire.Request { return a.kind.renewal(a) }
