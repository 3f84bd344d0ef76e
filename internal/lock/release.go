package lock

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// An attempt ends in one of these ways:
//
//	state    event                              here                        at the server
//	waiting  not granted, or the caller left    abandon                     withdraw, if it may have stored the attempt
//	         a message grants it too late       withdrawUnwanted            withdraw
//	held     Unlock                             end with ErrReleased        release, then retryRelease in the background
//	         Close                              end with ErrClosed          retryRelease in the background
//	         its validity is over               Lost with ErrLeaseExpired   nothing: the work has the rest of the TTL to stop
//	         the server no longer has it        EndAsLost                   withdraw, if an acquire is in flight
//	         a package above has released it    Finish                      nothing
//	         Abort                              end with ErrLeaseExpired    nothing
//	expired  Unlock                             ErrNotHeld                  withdraw: the work has stopped
//	ended    Unlock                             ErrNotHeld                  nothing
//
// In all these ways, the server gets the same request, from sendRelease. withdraw, release and retryRelease send it
// until it is answered, which is safe. A tombstone, if it writes one, makes an acquire fail that arrives later. If the
// request grants the lock to a waiter, a grantCheck repeats it at the end of that grant. If this process dies, the
// lock expires with its TTL.

// abandon ends an attempt that got no lease. If the server may have stored the attempt, a background task withdraws it.
func (a *Attempt) abandon() {
	c := a.c
	if a.mayBeStored.Load() {
		// The task starts before the attempt is deleted, so that Close always waits for the task or for the attempt.
		c.Background(a.withdraw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, a.number)
	c.idle.Broadcast()
}

// withdraw removes an attempt from the server: its entry in the queue and its lock. It
// retries until an answer arrives, or until the lock has expired.
func (a *Attempt) withdraw(ctx context.Context) {
	retry := wire.NewRetry(a.terms.timeout(), max(a.terms.ttl, 10*time.Second), nil)
	err := retry.Do(ctx, wire.MayRetryLater, func() error {
		_, err := a.leave(ctx, retry.Timeout())
		return err
	})
	if err != nil && a.c.mayLog("") { // without rights at the server, every withdrawal fails
		wire.Log(a.c.log, err, "failed to withdraw an abandoned attempt; it expires with its TTL", "name", a.keys.name, "ttl", a.terms.ttl)
	}
}

// withdrawUnwanted withdraws an attempt of this process that was granted although no call waits for it: an earlier
// withdrawal was lost. unanswered is true if an acquire of the attempt may still arrive.
func (c *Client) withdrawUnwanted(name, value string, v Value, unanswered bool) {
	select {
	case c.unwantedGrants <- struct{}{}:
	default:
		return // too many tasks at once: the grant expires without this one
	}
	// Users and jobs have different retentions, and the name may be of either. The longer retention is safe.
	terms := &leaseTerms{ttl: defaultTTL, ttlText: decimal(defaultTTL), keepText: decimal(max(c.tokenRetention, ledgerRetention))}
	n := &Name{c: c, keys: c.keys.lock(name), terms: terms}
	a := n.attempt(kindOf(v), v.number, value)
	a.unanswered.Store(unanswered)
	if !c.Background(func(ctx context.Context) {
		defer func() { <-c.unwantedGrants }()
		a.withdraw(ctx)
	}) {
		<-c.unwantedGrants
	}
}

// leave releases the attempt, or removes it from the queue. The result is greater than 0
// if the attempt held the lock. If an acquire may still arrive, the script also writes a tombstone.
func (a *Attempt) leave(ctx context.Context, timeout time.Duration) (int64, error) {
	withdraw := a.unanswered.Load()
	if withdraw {
		a.c.mu.Lock()
		a.c.pendingTombs[a.number] = struct{}{}
		a.c.mu.Unlock()
	}
	n, err := a.sendRelease(ctx, withdraw, timeout)
	if withdraw && err == nil {
		a.c.mu.Lock()
		delete(a.c.pendingTombs, a.number)
		a.c.mu.Unlock()
	}
	return n, err
}

// Unlock ends the lease and releases its lock. lockcore.Lease.Unlock describes it.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.life.Err() == nil && l.end(ErrReleased) {
		return l.release(ctx)
	}
	cause := l.life.Cause()
	l.mu.Lock()
	expired := errors.Is(cause, ErrLeaseExpired) && !l.unlocked
	l.unlocked = true
	l.mu.Unlock()
	if expired {
		// The work has stopped, so the rest of the TTL would only delay waiters.
		l.a.c.Background(l.a.withdraw)
	}
	return OpError("unlock", l.a.keys.name, ErrNotHeld, cause)
}

func (l *Lease) release(ctx context.Context) error {
	a := l.a
	first := ctx
	if ctx.Err() != nil {
		// Release the lock even if the caller's context is done.
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.Detached())
		defer cancel()
	}
	began := time.Now()
	n, err := a.leave(first, a.terms.timeout())
	if err == nil {
		l.remove()
		if n <= 0 { // the server no longer had the lease
			return OpError("unlock", a.keys.name, ErrNotHeld, a.c.topology.lossReason(first, a))
		}
		return nil
	}
	if !wire.MayRetryLater(err) && ctx.Err() == nil {
		l.remove()
		return OpError("unlock", a.keys.name, err)
	}
	done := make(chan error, 1)
	if !a.c.Background(func(bg context.Context) {
		done <- l.retryRelease(bg, a.terms.ttl-time.Since(began), wire.MayBeApplied(err))
	}) {
		return OpError("unlock", a.keys.name, ErrClosed)
	}
	select {
	case err := <-done:
		return err
	case <-first.Done():
		return OpError("unlock", a.keys.name, first.Err(), err,
			errors.New("lockcore: the release continues in the background; the lock expires with its TTL at the latest"))
	}
}

// Detached returns how long Unlock waits for the answer if the caller's context is done before it.
func (l *Lease) Detached() time.Duration { return min(l.a.terms.ttl, 10*time.Second) }

// retryRelease sends the release until it is answered, or until within has passed and the lock
// has expired. unanswered is true if an earlier release of the lease had no answer.
func (l *Lease) retryRelease(ctx context.Context, within time.Duration, unanswered bool) error {
	defer l.remove()
	a := l.a
	retry := wire.NewRetry(a.terms.timeout(), max(within, time.Millisecond), nil)
	n := int64(0)
	err := retry.Do(ctx, wire.MayRetryLater, func() (err error) {
		n, err = a.leave(ctx, retry.Timeout())
		unanswered = unanswered || wire.MayBeApplied(err)
		return err
	})
	switch {
	case err != nil:
		return OpError("unlock", a.keys.name, err, errors.New("lockcore: the release was not answered; the lock expires with its TTL"))
	case n > 0 || unanswered: // with n <= 0, an unanswered release was applied
		return nil
	}
	return OpError("unlock", a.keys.name, ErrNotHeld, a.c.topology.lossReason(ctx, a))
}

// releaseAll releases all leases of a Client that is closed. It also sends the releases of all grantChecks at once.
func (c *Client) releaseAll() {
	c.mu.Lock()
	held := make([]*Lease, 0, len(c.leases))
	for _, l := range c.leases {
		held = append(held, l)
	}
	checks := c.checks
	c.checks = nil
	c.mu.Unlock()
	for _, check := range checks {
		if check.timer.Stop() {
			// The script knows that the Client is closed, and notifies other processes, which then check the grant.
			check.release(wire.NewRetry(check.a.terms.timeout(), time.Second, nil))
		}
	}
	for _, l := range held {
		if l.end(ErrClosed) {
			c.Background(func(ctx context.Context) { _ = l.retryRelease(ctx, l.a.terms.ttl, false) })
		}
	}
}

// end ends the lease with a cause. It returns false if the lease had ended before.
func (l *Lease) end(cause error) bool {
	if !l.life.End(cause) {
		return false
	}
	l.countEnd()
	return true
}

func (l *Lease) countEnd() { l.a.c.metrics.kind(l.a.kind.Label()).held.Dec() }

func (l *Lease) remove() {
	c := l.a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners.remove(l)
	delete(c.leases, l.a.number)
	c.idle.Broadcast()
}

// A holder is a Lease as a lease.Holder. So Lost is no method of a Lease.
type holder struct{ *Lease }

// Lost is called when the validity of the lease has ended.
func (h holder) Lost(cause error) {
	h.countEnd()
	h.recordLoss(cause)
}

// EndAsLost ends the lease after the server has answered that it no longer has the lease.
func (l *Lease) EndAsLost() {
	if explain := l.endAsLost(); !l.a.c.Background(explain) {
		explain(l.a.c.ctx)
	}
}

// endAsLost ends the lease at once. explain reads the reason from the server, and records the loss.
func (l *Lease) endAsLost() (explain func(context.Context)) {
	cause := new(lossError)
	if !l.end(cause) {
		return func(context.Context) {}
	}
	return func(ctx context.Context) {
		reason := l.a.c.topology.lossReason(ctx, l.a)
		cause.reason.Store(&reason)
		l.recordLoss(cause)
	}
}

// Abort ends the lease locally. The server keeps it until its TTL expires. The cause is ErrLeaseExpired
// joined with reason. Abort returns false if the lease has ended before.
func (l *Lease) Abort(reason error) bool {
	if l.life.Err() != nil || !l.end(errors.Join(ErrLeaseExpired, reason)) {
		return false
	}
	l.remove()
	return true
}

// Finish ends the lease with ErrReleased, after a script of a package above has released it on the server.
func (l *Lease) Finish() {
	if l.end(ErrReleased) {
		l.remove()
	}
}

// recordLoss logs and counts a lease that ended without Unlock or Close. It does not release an expired lease, because
// the work has the rest of the server's TTL to stop.
func (l *Lease) recordLoss(cause error) {
	c := l.a.c
	c.metrics.countLoss(cause)
	about := []any{"name", l.a.keys.name, "kind", l.a.kind.Label(), "token", l.token}
	c.log.Error(cause, "lease lost", about...)
	if errors.Is(cause, ErrLeaseLost) && l.a.unanswered.Load() {
		// An acquire in flight must not take the lock again.
		c.Background(l.a.withdraw)
	}
	l.remove()
}
