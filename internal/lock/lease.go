package lock

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/wire"
)

// hold starts the lease of an attempt that was granted. It is the only place where a lease begins.
func (a *Attempt) hold(ctx context.Context, g grant) (*Lease, error) {
	c := a.c
	l := &Lease{a: a, token: g.token, slot: -1}
	if k, isSemaphore := a.kind.(slotKind); isSemaphore {
		l.slot = g.slot
		if g.size != k.n && c.mayLog("size of "+a.keys.name) {
			c.log.Info("the stored size of a Semaphore counts; Resize changes it", "name", a.keys.name, "stored", g.size, "given", k.n)
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	l.life = &l.granted
	c.keeper.Begin(readiness.WithoutAnswers(ctx), l.life, g.t0, &a.terms.times, holder{l})
	delete(c.waiting, a.number)
	c.leases[a.number] = l
	c.owners.add(l)
	c.mu.Unlock()
	c.metrics.kind(a.kind.Label()).held.Inc()
	return l, nil
}

// From returns the lease of the work that a context is for, or nil.
func From(ctx context.Context) *Lease {
	l := lease.From(ctx)
	if l == nil {
		return nil
	}
	if partition, _ := ctx.Value(partitionKey{}).(*Lease); partition != nil && partition.life == l {
		return partition
	}
	return l.Holder().(holder).Lease
}

type partitionKey struct{}

// ForPartition returns the lease of a partition, which has a token of its own and ends with l. For the contexts of its
// Context and Bind, From returns the new lease.
func (l *Lease) ForPartition(token uint64) *Lease {
	return &Lease{a: l.a, token: token, slot: -1, life: l.life, forPartition: true}
}

// withPartition returns a context from which From returns the lease, if it is for a partition.
func (l *Lease) withPartition(ctx context.Context) context.Context {
	if !l.forPartition {
		return ctx
	}
	return context.WithValue(ctx, partitionKey{}, l)
}

// Attempt returns the attempt of the lease.
func (l *Lease) Attempt() *Attempt { return l.a }

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.a.keys.name }

// Token returns the fencing token.
func (l *Lease) Token() uint64 { return l.token }

// Slot returns the slot of a Semaphore, or -1.
func (l *Lease) Slot() int { return l.slot }

// Remaining returns how long the lease stays valid without another renewal.
func (l *Lease) Remaining() time.Duration { return l.life.Remaining() }

// Context returns a context that is done when the lease ends.
func (l *Lease) Context() context.Context { return l.withPartition(l.life.Context()) }

// Bind returns a context that is done when parent is done or the lease ends.
func (l *Lease) Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	return l.life.Bind(l.withPartition(parent))
}

// Value returns the secret value of the lease at the server.
func (l *Lease) Value() string { return l.a.value }

// Err returns nil while the lease is valid, and then the cause of its end.
func (l *Lease) Err() error { return l.life.Err() }

// Overdue returns the time since the lease ended, 0 while it is valid.
func (l *Lease) Overdue() time.Duration { return l.life.Overdue() }

// Of reports whether the lease is for the name n, with the same Client and the kind k.
func (l *Lease) Of(n *Name, k Kind) bool {
	return l.a.c == n.c && l.a.keys.name == n.keys.name && l.a.kind == k
}

// Downgrade turns a write lease into a read lease. lockcore.Lease.Downgrade describes it.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	k, ok := l.a.kind.(ownedKind)
	if !ok || k.mode != ModeWrite {
		return OpError(op, l.Name(), ErrNotWriter)
	}
	if cause := l.life.Err(); cause != nil {
		return OpError(op, l.Name(), ErrNotHeld, cause)
	}
	n, err := l.downgrade(ctx)
	cause := l.life.Err()
	switch {
	case err != nil && cause != nil:
		return OpError(op, l.Name(), ErrNotHeld, cause, err)
	case err != nil:
		return OpError(op, l.Name(), err)
	case n == 0:
		l.endAsLost()(ctx)
		return OpError(op, l.Name(), ErrNotHeld, l.life.Cause())
	}
	return nil
}

func (l *Lease) downgrade(ctx context.Context) (int64, error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	c, keys := l.a.c, l.a.keys
	req := c.scripts.ownedDowngrade.Call(keys.args(), &l.a.value, &l.a.terms.keepText, &keys.channels)
	retry := c.newRetry(l.a.terms.timeout(), 0)
	answer, err := retry.Send(bound, c.wire, keys.name, req, wire.MayRetryLater)
	if err != nil {
		return 0, errors.Join(context.Cause(bound), err)
	}
	return req.Number(answer, nil)
}

// RenewNow makes the next renewal due now, and returns at once.
func (l *Lease) RenewNow() { l.life.RenewNow() }

// A renewer sends the renewals of a Client. It is the lease.Renewer of the Client's Keeper.
type renewer struct{ c *Client }

func (r renewer) Stream(l *lease.Lease) lease.Stream {
	a := l.Holder().(holder).a
	return r.c.wire.Renewals(a.keys.name)
}

func (r renewer) Renew(ctx context.Context, stream lease.Stream, t0, within time.Duration, leases []*lease.Lease) (done []bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, wire.NoAnswer(within))
	defer cancel()
	requests := make([]wire.Request, len(leases))
	for i, l := range leases {
		a := l.Holder().(holder).a
		// The server waits for replicas only half of ResendAfter, or its answer would be too late.
		requests[i] = a.kind.Renewal(a).Replicated(l.ResendAfter() / 2)
	}
	done = make([]bool, len(leases))
	for i, answer := range stream.(wire.Renewals).Send(ctx, requests) {
		if answer.Err == nil && r.Stream(leases[i]) != stream {
			answer = wire.Answer{Err: cluster.ErrFormerServer}
		}
		done[i] = leases[i].Holder().(holder).renewed(t0, requests[i], answer)
	}
	return done
}

func (r renewer) Late(by time.Duration) { r.c.metrics.lateness.Observe(by.Seconds()) }

// renewed handles the answer to a renewal that was sent at t0. It returns false if the renewal must be tried again.
func (l *Lease) renewed(t0 time.Duration, req wire.Request, r wire.Answer) bool {
	m := l.a.c.metrics
	if errors.Is(r.Err, ErrNotReplicated) {
		if r.Value != int64(0) { // a lost lease needs no replica
			m.unreplicated.Inc()
			l.life.ExpireAs(errors.Join(ErrLeaseExpired, r.Err))
			l.logFailure(r.Err)
			return false
		}
		r.Err = nil
	}
	if r.Err != nil {
		m.failed.Inc()
		l.logFailure(r.Err)
		return false
	}
	if noticer, ok := l.a.kind.(Noticer); ok {
		if n, _ := r.Value.(int64); n > 1 {
			noticer.Noticed(l.a, n)
			r.Value = int64(1)
		}
	}
	switch r.Value {
	case int64(1):
		m.renewed.Inc()
		l.refusalLogged.Store(false)
		if l.a.extendsCounter(t0) { // then Renewal, which was called after t0, decided the same
			l.a.counterExtendedAt.Store(int64(t0))
		}
		l.life.Extend(t0)
	case int64(0):
		m.lost.Inc()
		l.EndAsLost()
	default:
		m.failed.Inc()
		l.logFailure(req.OddReply(r.Value))
		return false
	}
	return true
}

// logFailure logs a renewal that failed. If an operator must act, it logs an error, but only
// once until a renewal succeeds: a lease is renewed several times per TTL.
func (l *Lease) logFailure(err error) {
	log := l.a.c.log.V(1)
	about := []any{"name", l.a.keys.name, "token", l.token, "remaining", l.Remaining().String()}
	if wire.VerdictOf(err).Operator && l.refusalLogged.Swap(true) {
		log.Info("renewal failed again", append(about, "err", err)...)
		return
	}
	wire.Log(log, err, "renewal failed", about...)
}
