package lockcore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
)

// waitInQueue queues an attempt and waits until it is granted. last has the last reply
// that named a holder.
func (m *Mutex) waitInQueue(ctx context.Context) (lease *Lease, last acquireReply, err error) {
	messages := m.c.wire.Messages(m.keys.name)
	if !messages.Up() {
		// Subscribe before joining the queue. A free lock needs no subscription.
		lease, last, err = m.tryOnce(ctx, 0)
		if lease != nil || err != nil && delayOf(err) == nil {
			return lease, last, err
		}
	}
	defer messages.Start(ctx)()
	a, err := m.newAttempt(ctx, true)
	if err != nil {
		return nil, last, err
	}
	defer func() {
		if lease == nil {
			m.c.abandon(a)
		}
	}()
	waiting := m.c.metrics.kind(m.kind.name()).queue().waiting
	waiting.Inc()
	defer waiting.Dec()
	r, err := a.retryAcquire(ctx, modeJoin, 0)
	for waited := false; ; waited = true {
		if delayed := delayOf(err); delayed != nil {
			if err := a.pause(ctx, delayed); err != nil {
				return nil, last, err
			}
			mode := modeJoin
			if a.place != "" {
				mode = modeLook
			}
			r, err = a.retryAcquire(ctx, mode, 0)
			continue
		}
		if r.code >= answerHead && r.code <= answerBusy {
			last = r
		}
		lease, err = a.makeLease(ctx, &r, err)
		switch heard := time.Duration(a.grantedAt.Load()); {
		case err != nil:
			return nil, last, err
		case heard == 0:
			if lease != nil && waited {
				messages.Suspect(m.terms.ttl) // the grant's message may have been missed
			}
		case lease != nil:
			m.c.metrics.handover.Observe((m.c.clock.Now() - heard).Seconds())
		case heard > r.t0:
			// The server may have made the grant after this reply, and its message arrived
			// first. The next reply decides.
		default:
			a.grantedAt.Store(0)
			m.c.metrics.lapsed.Inc()
		}
		if lease != nil {
			return lease, last, nil
		}
		if r.left == -1*time.Millisecond && !a.warnedNoTTL {
			a.warnedNoTTL = true
			m.c.log.Error(errNoTTL, "waiting for a lock without TTL", "name", m.keys.name)
		}
		if err := a.await(ctx, r); err != nil {
			return nil, last, err
		}
		mode := modeLook
		if r.code == answerNotQueued {
			mode = modeJoin
			if a.trusted && !messages.Retest(ctx) {
				// The server did not count this process as a receiver, and would skip the
				// attempt again. A new attempt, which is not trusted, takes the same place.
				next, err := m.newAttempt(ctx, true)
				if err != nil {
					return nil, last, err
				}
				next.place = a.place
				m.c.abandon(a)
				a = next
			}
		}
		r, err = a.retryAcquire(ctx, mode, 0)
	}
}

var errNoTTL = errors.New("lockcore: another program wrote the key, and it may never expire")

// pause waits until the server grants leases again. It returns an error if the wait is over.
func (a *attempt) pause(ctx context.Context, delayed *DelayError) error {
	switch {
	case retry.Sleep(ctx, delayed.Left, a.c.closing):
		return nil
	case ctx.Err() != nil:
		return errors.Join(ended(ctx), delayed)
	}
	return ErrClosed
}

// await waits until the attempt must look again. It returns an error if the wait is over.
func (a *attempt) await(ctx context.Context, r acquireReply) error {
	if r.code == answerNotQueued {
		return nil
	}
	refresh := a.terms.refresh()
	if messages := a.c.wire.Messages(a.keys.name); !messages.Up() && !messages.Trusted() {
		refresh = min(refresh, time.Second/2) // no messages arrive
	}
	refresh = refresh*9/10 + rand.N(refresh/5) //nolint:gosec // jitter
	next := a.c.clock.Now() + refresh
	if r.code == answerHead && r.left >= 0 {
		next = min(next, a.c.clock.Now()+r.left+2*time.Millisecond)
	}
	for {
		timer := time.NewTimer(max(0, next-a.c.clock.Now()))
		select {
		case <-timer.C:
			return nil
		case <-a.wake:
			timer.Stop()
			if a.look.Swap(false) {
				return nil
			}
			if left := a.endsIn.Swap(0); left > 0 {
				next = min(next, a.c.clock.Now()+time.Duration(left)+2*time.Millisecond)
			}
		case <-ctx.Done():
			timer.Stop()
			return ended(ctx)
		case <-a.c.closing:
			timer.Stop()
			return ErrClosed
		}
	}
}
