package lockcore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	wait "github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// An attempt is one try to acquire a lock, from its first request to its last. Its number
// is never used again. So the server can tell a late request from a new one, and a
// repeated request is harmless. An attempt that is not granted must be abandoned.
type attempt struct {
	c      *Client
	kind   kind
	queued queueKind // kind, if attempts of it can queue; else nil
	keys   *lockKeys
	terms  *leaseTerms
	number uint64
	value  string
	place  string // its last score in the queue, for joining again

	tomb     string // key of the tombstone
	keyArgs  []any  // the keys in the order of the scripts' KEYS
	valueArg any    // value

	trusted bool // the value says that PUBLISH counts this process as a receiver

	token uint64     // of a grant of a quorum, which renewals commit
	trail wire.Trail // of its requests to the servers of a quorum

	wait wire.Wait   // of the first acquire
	sent atomic.Bool // it is in use

	endedToken uint64 // sent with the last acquire, see owners

	// unanswered: an acquire was not answered and may still arrive. mayBeStored: the server
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

// newAttempt creates an attempt to acquire the lock.
func (m *Mutex) newAttempt(ctx context.Context, waits bool) (*attempt, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	a, err := m.c.newAttempt(m.kind, m.keys, m.terms, waits)
	if err == nil {
		a.queued = m.kind
	}
	return a, err
}

func makeAttempt(c *Client, k kind, keys *lockKeys, terms *leaseTerms, number uint64, value string) *attempt {
	a := &attempt{
		c: c, kind: k, keys: keys, terms: terms, number: number, value: value, valueArg: value,
		tomb: keys.tomb(c.process, number), keyArgs: make([]any, len(keys.args)+1),
	}
	a.keyArgs[copy(a.keyArgs, keys.args)] = a.tomb
	return a
}

// newAttempt creates an attempt. It returns ErrClosed if the Client is closed.
func (c *Client) newAttempt(k kind, keys *lockKeys, terms *leaseTerms, waits bool) (*attempt, error) {
	n, trusted := c.attempts.Add(1), waits && c.wire.Messages(keys.name).Trusted()
	a := makeAttempt(c, k, keys, terms, n, k.value(c.process, n, trusted, terms.identity))
	a.trusted = trusted
	if waits {
		a.wake = make(chan struct{}, 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.waiting[n] = a
	return a, nil
}

// retryAcquire sends an acquire and retries it until it is answered, ctx ends, or within
// has passed; 0: without limit. A waiter that has a place in the queue keeps it: its acquire is also
// retried while the server lacks memory, disk space or replicas.
func (a *attempt) retryAcquire(ctx context.Context, mode string, within time.Duration) (r acquireReply, err error) {
	retryable := wire.MayRetry
	if a.place != "" {
		retryable = wire.MayRetryLater
	}
	retry := a.c.newRetry(a.terms.timeout(), within)
	ahead := 0
	err = retry.Do(ctx, retryable, func() (err error) {
		for {
			r, err = a.sendAcquire(ctx, mode, retry.Timeout())
			if isAhead(err) && wait.Sleep(ctx, aheadPause, a.c.closing) && ahead < aheadTries {
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

// sendAcquire sends one acquire.
func (a *attempt) sendAcquire(ctx context.Context, mode string, timeout time.Duration) (acquireReply, error) {
	if mode == modeJoin && a.place != "" {
		mode = a.place
	}
	if err := a.c.topology.ready(ctx); err != nil {
		return acquireReply{}, err
	}
	req := a.terms.replicated(a.queued.acquire(a, mode)).Granting()
	wait := &a.wait
	if a.sent.Swap(true) {
		wait = new(wire.Wait) // an earlier request of the attempt may still use the other
	}
	t0 := a.c.clock.Now()
	answer, err := a.c.wire.Send(ctx, a.keys.name, req.Timed(wait), timeout)
	answer, short, err := shortOf(answer, err)
	if delayOf(err) == nil { // during a delay, a candidate is as ready as one that waits
		readiness.Answered(ctx, err)
	} else {
		readiness.Answered(ctx, nil)
	}
	if err != nil {
		a.noteFailure(err)
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
		a.place = r.place
	}
	r.t0, r.short = a.c.sentAt(t0, wait), short
	if r.code == answerHeld {
		return a.c.topology.confirm(ctx, a, r, timeout)
	}
	return r, nil
}

// sentAt returns when a request was sent that was made at a time and then waited, for example for
// a connection. The wait is measured by a clock that may stop while the machine is suspended.
// Then, the result is too early, which only makes a lease shorter.
func (c *Client) sentAt(made time.Duration, wait *wire.Wait) time.Duration {
	took := wait.Took()
	if took == 0 {
		return made
	}
	return min(made+took, c.clock.Now())
}

// shortOf takes ErrNotReplicated out of the result of a request that may grant a lease. Only a
// grant needs the replicas. If the server refuses to ask them, no grant can follow.
func shortOf(answer any, err error) (_ any, short, _ error) {
	if answer != nil && errors.Is(err, ErrNotReplicated) && !wire.IsRefused(err) {
		return answer, err, nil
	}
	return answer, nil, err
}

// noteFailure records that a request for the attempt was not answered or was refused.
func (a *attempt) noteFailure(err error) {
	if errors.Is(err, ErrUnknown) {
		a.unanswered.Store(true)
	}
	if wire.MayBeApplied(err) {
		a.mayBeStored.Store(true)
	}
}

// makeLease returns the lease if the reply r is a grant. It returns neither a lease nor an
// error if the attempt has to wait. It then leaves the last reply in r.
func (a *attempt) makeLease(ctx context.Context, r *acquireReply, err error) (lease *Lease, _ error) {
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
	case delayOf(err) != nil:
		return nil, errors.Join(ErrNotAcquired, err)
	case err != nil:
		return nil, err
	case r.code == answerWrongKind:
		return nil, ErrWrongKind
	case r.code == answerUpgrade:
		return nil, errors.Join(ErrNotAcquired, ErrUpgrade)
	case r.code == answerWithdrawn:
		// Only a forged message can cause a tombstone for an attempt that is not abandoned.
		return nil, errors.Join(ErrNotAcquired, errTombstone)
	}
	return nil, nil
}

// A grant is an answer of the server that grants a lease.
type grant struct {
	token uint64        // 0: not granted
	t0    time.Duration // just before the request was sent
	short error         // ErrNotReplicated; nil: enough replicas have the grant
}

// startLease returns the lease of a grant. While a grant is in flight, its validity may end,
// or the last lease with its token may expire. In these cases, startLease calls again, which
// sends another request and so extends the hold. The third such grant is an error, and
// so is one that too few replicas have. If the attempt is not granted, startLease returns
// neither a lease nor an error.
func (a *attempt) startLease(ctx context.Context, g grant, again func() (grant, error)) (*Lease, error) {
	for tries := 1; g.token > 0; tries++ {
		if g.short != nil {
			return nil, errors.Join(ErrNotAcquired, g.short)
		}
		tokenEnded := a.c.endedToken(a) >= g.token && a.endedToken < g.token
		if a.c.clock.Now() < g.t0+a.terms.times.Valid && !tokenEnded {
			return a.c.hold(ctx, a, g)
		}
		if tries == 3 {
			return nil, errors.Join(ErrNotAcquired, ErrLeaseExpired, errSlowServer)
		}
		var err error
		if g, err = again(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

var (
	errSlowServer = errors.New("lockcore: the server takes longer to answer than a lease is valid")
	errTombstone  = errors.New("lockcore: a tombstone for the attempt exists, although it was not abandoned")
)

// abandon ends an attempt that got no lease. If the server may have stored something for
// it, a background task withdraws that.
func (c *Client) abandon(a *attempt) {
	if a.mayBeStored.Load() {
		// The task starts before the attempt is deleted, so that Close always waits for one of
		// the two.
		c.background(func(ctx context.Context) { c.withdraw(ctx, a) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, a.number)
	c.idle.Broadcast()
}

// withdraw removes an attempt from the server: its place in the queue and its lock. It
// retries until it is answered, or until a lock that it leaves behind has expired.
func (c *Client) withdraw(ctx context.Context, a *attempt) {
	retry := wire.NewRetry(a.terms.timeout(), max(a.terms.ttl, 10*time.Second), nil)
	err := retry.Do(ctx, wire.MayRetryLater, func() error {
		_, err := a.leave(ctx, retry.Timeout())
		return err
	})
	if err != nil {
		wire.Log(c.log, err, "failed to withdraw an abandoned attempt; it expires with its TTL", "name", a.keys.name, "ttl", a.terms.ttl)
	}
}

// leave releases the attempt, or removes it from the queue. The result is greater than 0
// if it held the lock. If an acquire of the attempt may still arrive, the script also
// writes a tombstone.
func (a *attempt) leave(ctx context.Context, timeout time.Duration) (int64, error) {
	withdraw := a.unanswered.Load()
	if withdraw {
		a.c.mu.Lock()
		a.c.pendingTombs[a.number] = struct{}{}
		a.c.mu.Unlock()
	}
	n, err := a.sendLeave(ctx, withdraw, timeout)
	if withdraw && err == nil {
		a.c.mu.Lock()
		delete(a.c.pendingTombs, a.number)
		a.c.mu.Unlock()
	}
	return n, err
}

// sendLeave sends one leave. If the leave grants the lock to a waiter, the Client checks this
// when the grant ends.
func (a *attempt) sendLeave(ctx context.Context, withdraw bool, timeout time.Duration) (int64, error) {
	req := a.kind.leave(a, withdraw)
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
