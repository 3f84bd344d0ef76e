package lock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// begin begins an attempt. waits means that the attempt queues. It returns ErrClosed if the Client is closed.
func (n *Name) begin(ctx context.Context, k Kind, waits bool) (*Attempt, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	c := n.c
	number := c.attempts.Add(1)
	a := n.attempt(k, number, k.stored(c.process, number, c.identity))
	if waits {
		a.wake = retry.NewSignal()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.waiting[number] = a
	return a, nil
}

// tryOnce makes one attempt that does not queue. reply is its last answer.
func (n *Name) tryOnce(ctx context.Context, k Kind, within time.Duration) (lease *Lease, reply acquireReply, err error) {
	a, err := n.begin(ctx, k, false)
	if err != nil {
		return nil, reply, err
	}
	reply, err = a.retryAcquire(ctx, modeTry, within)
	if lease, err = a.makeLease(ctx, &reply, err); lease == nil {
		a.abandon()
	}
	return lease, reply, err
}

// An attempt at a quorum that has more servers than the others tries again aheadTries times, after aheadPause each.
// Meanwhile, the others give way.
const (
	aheadPause = time.Millisecond
	aheadTries = 20
)

// retryAcquire sends an acquire and retries it until it is answered, ctx ends, or within has passed, unless within is
// zero. The acquire of a waiter in the queue is also retried while the server lacks memory, disk space or replicas, so
// that the waiter keeps its place.
func (a *Attempt) retryAcquire(ctx context.Context, mode string, within time.Duration) (r acquireReply, err error) {
	retryable := wire.MayRetry
	if a.score != "" {
		retryable = wire.MayRetryLater
	}
	tries := a.c.newRetry(a.terms.timeout(), within)
	ahead := 0
	err = tries.Do(ctx, retryable, func() (err error) {
		for {
			r, err = a.sendAcquire(ctx, mode, tries.Timeout())
			if errors.Is(err, members.ErrAhead) && retry.Sleep(ctx, aheadPause, a.c.closing) && ahead < aheadTries {
				ahead++
				continue
			}
			if err != nil || r.left != unswept {
				return err
			}
		}
	})
	return r, err
}

func (a *Attempt) sendAcquire(ctx context.Context, mode string, timeout time.Duration) (acquireReply, error) {
	if mode == modeJoin && a.score != "" {
		mode = a.score
	}
	left, err := a.c.topology.ready(ctx, timeout)
	if err != nil {
		return acquireReply{}, err
	}
	req := a.terms.replicated(a.kind.Acquire(a, a.limited(ctx, mode))).Granting(isGrant)
	stamp, again := &a.stamp, a.requested.Swap(true)
	if again {
		stamp = new(wire.Stamp) // an earlier request of the attempt may still use a.stamp
	}
	answer, err := a.c.wire.Send(ctx, a.keys.name, req.Stamped(stamp), left)
	answer, unreplicated, err := takeUnreplicated(answer, err)
	if DelayOf(err) == nil {
		readiness.Answered(ctx, err)
	} else {
		readiness.Answered(ctx, nil) // the delay of a server is no failure: the caller waits as in a queue
	}
	if err != nil {
		a.recordFailure(err)
		return acquireReply{}, err
	}
	r, ok := readAcquire(answer)
	if !ok || r.code <= answerQueued {
		a.mayBeStored.Store(true)
	}
	if !ok {
		return acquireReply{}, req.OddReply(answer)
	}
	if r.code == answerHead || r.code == answerQueued {
		a.score = r.score
	}
	r.t0, r.unreplicated = stamp.At(), unreplicated
	if a.wake != nil {
		a.c.recordRoundTrip(a.c.clock.Now() - r.t0)
	}
	if r.code == answerHeld {
		if a.setsCounter && !again { // a repeated acquire may be answered with an earlier grant
			a.counterSet.Store(int64(r.t0))
		}
		return a.c.topology.confirm(ctx, a, r, timeout)
	}
	return r, nil
}

// limited adds to a mode how long the queue may serve the attempt, if its caller leaves before its entry would lapse.
func (a *Attempt) limited(ctx context.Context, mode string) string {
	a.servedUntil = 0
	if mode == modeTry {
		return mode
	}
	left, ok := a.servable(ctx)
	if !ok {
		return mode
	}
	a.servedUntil = a.c.clock.Now() + left
	if left <= 0 && mode != modeCheck {
		return modeTry
	}
	return mode + "," + strconv.FormatInt(max(0, left.Milliseconds()), 10)
}

// servable returns for how long the queue may still serve the attempt: a later grant would reach the caller after its
// deadline. ok is false if there is no deadline, or if the entry in the queue lapses before it. The message about a
// grant, the check that confirms the grant, and the reply take one and a half round trips. Another round trip is for
// this request and for networks that vary.
func (a *Attempt) servable(ctx context.Context) (left time.Duration, ok bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	left = time.Until(deadline) - time.Duration(a.c.roundTrip.Load())*5/2
	return left, left < 3*a.terms.refresh()
}

// recordRoundTrip records how long a request took. A shorter time counts at once, and a longer time by an eighth: one
// slow request does not shorten the waits of other callers.
func (c *Client) recordRoundTrip(took time.Duration) {
	before := c.roundTrip.Load()
	if now := int64(took); now < before || before == 0 {
		c.roundTrip.Store(now)
	} else {
		c.roundTrip.Store(before + (now-before)/8)
	}
}

// takeUnreplicated separates ErrNotReplicated from the result of a request that may grant a lease, because only a
// grant needs the replicas. If the server refuses to ask the replicas, the error stays: no grant can follow.
func takeUnreplicated(answer any, err error) (_ any, unreplicated, _ error) {
	if answer != nil && errors.Is(err, ErrNotReplicated) && !wire.IsRefused(err) {
		return answer, err, nil
	}
	return answer, nil, err
}

// recordFailure records that a request for the attempt was not answered or was refused.
func (a *Attempt) recordFailure(err error) {
	if wire.MayBeApplied(err) {
		a.unanswered.Store(true)
		a.mayBeStored.Store(true)
	}
}

// makeLease returns the lease if the reply r is a grant. It returns neither a lease nor an
// error if the attempt has to wait. r then has the last reply.
func (a *Attempt) makeLease(ctx context.Context, r *acquireReply, err error) (lease *Lease, _ error) {
	if err == nil {
		lease, err = a.startLease(ctx, r.grant, func() (_ grant, err error) {
			*r, err = a.sendAcquire(ctx, modeTry, a.terms.timeout())
			return r.grant, err
		})
	}
	switch {
	case lease != nil:
		return lease, nil
	case err != nil && ctx.Err() != nil:
		return nil, errors.Join(ended(ctx), err)
	case DelayOf(err) != nil, errors.Is(err, members.ErrOvertaken):
		return nil, errors.Join(ErrNotAcquired, err)
	case err != nil:
		return nil, err
	case r.code == answerWrongKind:
		return nil, ErrWrongKind
	case r.code == answerUpgrade:
		return nil, errors.Join(ErrNotAcquired, ErrUpgrade)
	case r.code == answerWithdrawn:
		// Only a forged message can cause this.
		return nil, errors.Join(ErrNotAcquired, errors.New("lockcore: a tombstone for the attempt exists, although it was not abandoned"))
	}
	return nil, nil
}

// startLease returns the lease of a grant. While a grant is in flight, its validity may end,
// or its token may become stale. startLease then calls resend, which sends another request and so
// extends the grant. If the third grant has the same fault, startLease returns an error. It also returns
// an error for a grant that too few replicas have. If g is no grant, it returns neither a lease nor an error.
func (a *Attempt) startLease(ctx context.Context, g grant, resend func() (grant, error)) (*Lease, error) {
	for tries := 1; g.token > 0; tries++ {
		if g.unreplicated != nil {
			return nil, errors.Join(ErrNotAcquired, g.unreplicated)
		}
		if a.c.clock.Now() < g.t0+a.terms.times.Valid && !a.isStale(g.token) {
			return a.hold(ctx, g)
		}
		if tries == 3 {
			return nil, errors.Join(ErrNotAcquired, ErrLeaseExpired, errSlowServer)
		}
		var err error
		if g, err = resend(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Hold creates a lease with a request of a package above, which acquire returns. It retries the request until an
// answer arrives, for at most two Timeouts. If the validity of the lease is over by then, Hold sends the request
// again, up to twice. read decodes the answer: it returns granted and a token above 0, or an error. If it returns
// granted and an error, Hold releases the grant.
func (n *Name) Hold(ctx context.Context, k Kind, acquire func(*Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (*Lease, error) {
	a, err := n.begin(ctx, k, false)
	if err != nil {
		return nil, err
	}
	var refusal error
	req := n.terms.replicated(acquire(a)).Granting(func(answer any) bool {
		_, granted, _ := read(answer)
		return granted
	})
	send := func(timeout time.Duration) (g grant, err error) {
		var stamp wire.Stamp
		answer, err := n.c.wire.Send(ctx, n.keys.name, req.Stamped(&stamp), timeout)
		answer, g.unreplicated, err = takeUnreplicated(answer, err)
		g.t0 = stamp.At()
		if err != nil {
			a.recordFailure(err)
			return g, err
		}
		var granted bool
		if g.token, granted, refusal = read(answer); granted {
			a.mayBeStored.Store(true)
		}
		return g, nil
	}
	var g grant
	tries := n.c.newRetry(n.terms.timeout(), 2*n.terms.timeout())
	err = tries.Do(ctx, wire.MayRetry, func() (err error) {
		g, err = send(tries.Timeout())
		return err
	})
	var lease *Lease
	if err == nil {
		lease, err = a.startLease(ctx, g, func() (grant, error) { return send(n.terms.timeout()) })
	}
	if lease == nil {
		a.abandon()
		return nil, cmp.Or(err, refusal)
	}
	return lease, nil
}

var errSlowServer = errors.New("lockcore: the server takes longer to answer than a lease is valid")
