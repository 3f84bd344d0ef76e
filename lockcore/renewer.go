package lockcore

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// A renewer sends the renewals of a Client, on connections of their own.
type renewer struct {
	c      *Client
	stream *wire.Stream
}

// Renew renews leases in one pipeline and counts the answers.
func (r *renewer) Renew(ctx context.Context, connection int, t0, within time.Duration, leases []*lease.Lease) (done []bool, works bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, wire.NoAnswer(within))
	defer cancel()
	requests := make([]wire.Request, len(leases))
	for i, l := range leases {
		requests[i] = l.Holder().(holder).a.renewal()
	}
	answers, works := r.stream.Send(ctx, connection, requests)
	done = make([]bool, len(leases))
	for i, answer := range answers {
		done[i] = leases[i].Holder().(holder).renewed(t0, requests[i], answer)
	}
	return done, works
}

func (r *renewer) Late(by time.Duration) { r.c.metrics.lateness.Observe(by.Seconds()) }

func (r *renewer) Mark() time.Duration { return r.stream.Mark() }

func (r *renewer) Doubt(mark time.Duration) { r.stream.Doubt(mark) }

// renewed counts the answer to a renewal sent at t0; false: try again.
func (l *Lease) renewed(t0 time.Duration, req wire.Request, r wire.Answer) bool {
	counts := l.c.metrics
	if r.Err != nil {
		counts.missed.Inc()
		l.c.log.V(1).Info("renewal failed", "name", l.a.keys.name, "token", l.token, "err", r.Err, "remaining", l.Remaining())
		return false
	}
	switch r.Value {
	case int64(1):
		counts.renewed.Inc()
		l.life.Extend(t0)
	case int64(0):
		counts.lost.Inc()
		if l.end(ErrLeaseLost) {
			l.c.noteLoss(l, ErrLeaseLost)
		}
	default:
		counts.missed.Inc()
		l.c.log.Error(req.OddReply(r.Value), "renewal failed", "name", l.a.keys.name, "token", l.token)
		return false
	}
	return true
}
