package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// A renewer sends the renewals of a Client.
type renewer struct{ c *Client }

// Stream returns the stream of the server that the lease's name is at.
func (r renewer) Stream(l *lease.Lease) lease.Stream {
	a := l.Holder().(holder).a
	return r.c.wire.Renewals(a.keys.name, a.terms.replicas)
}

// Renew renews leases in one batch and counts the answers.
func (r renewer) Renew(ctx context.Context, stream lease.Stream, t0, within time.Duration, leases []*lease.Lease) (done []bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, wire.NoAnswer(within))
	defer cancel()
	requests := make([]wire.Request, len(leases))
	for i, l := range leases {
		a := l.Holder().(holder).a
		// An answer that takes longer than Patience causes another renewal.
		requests[i] = a.kind.renewal(a).Replicated(a.terms.replicas, l.Patience()/2)
	}
	done = make([]bool, len(leases))
	for i, answer := range stream.(wire.Renewals).Send(ctx, requests) {
		if answer.Err == nil && r.Stream(leases[i]) != stream {
			answer = wire.Answer{Err: wire.ErrFormerServer}
		}
		done[i] = leases[i].Holder().(holder).renewed(t0, requests[i], answer)
	}
	return done
}

func (r renewer) Late(by time.Duration) { r.c.metrics.lateness.Observe(by.Seconds()) }

// renewed handles the answer to a renewal that was sent at t0. It returns false if the renewal
// must be tried again.
func (l *Lease) renewed(t0 time.Duration, req wire.Request, r wire.Answer) bool {
	counts := l.c.metrics
	if errors.Is(r.Err, wire.ErrCopied) {
		l.life.Shorten(t0)
	}
	if errors.Is(r.Err, ErrNotReplicated) {
		if r.Value != int64(0) { // the server's end of the lease needs no replica
			counts.short.Inc()
			l.life.ExpireAs(errors.Join(ErrLeaseExpired, r.Err))
			l.logFailure(r.Err)
			return false
		}
		r.Err = nil
	}
	if r.Err != nil {
		counts.missed.Inc()
		l.logFailure(r.Err)
		return false
	}
	noticer, notices := l.a.noticer()
	if notices && r.Value == int64(2) {
		noticer.Noticed(l.a.engineAttempt())
		r.Value = int64(1)
	}
	switch r.Value {
	case int64(1):
		counts.renewed.Inc()
		l.refused.Store(false)
		return l.life.Extend(t0)
	case int64(0):
		counts.lost.Inc()
		l.lose()
	default:
		counts.missed.Inc()
		l.logFailure(req.OddReply(r.Value))
		return false
	}
	return true
}

// logFailure logs a renewal that failed. If an operator is needed, it logs an error, but only
// once until a renewal is answered: a lease is renewed several times per TTL.
func (l *Lease) logFailure(err error) {
	log := l.c.log.V(1)
	about := []any{"name", l.a.keys.name, "token", l.token, "remaining", l.Remaining().String()}
	if wire.NeedsOperator(err) && l.refused.Swap(true) {
		log.Info("renewal failed again", append(about, "err", err)...)
		return
	}
	wire.Log(log, err, "renewal failed", about...)
}
