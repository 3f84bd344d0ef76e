package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// TryLock acquires the lock if it is free and the queue is empty. lockcore.Mutex.TryLock describes it.
func (n *Name) TryLock(ctx context.Context, k Kind) (lease *Lease, held *Held, err error) {
	start := n.c.clock.Ticks()
	lease, reply, err := n.tryOnce(ctx, k, 2*n.terms.timeout())
	if lease == nil && err == nil {
		held, err = n.heldBy(&reply), ErrNotAcquired
	}
	n.c.metrics.countAcquire(k.Label(), n.c.clock.Ticks()-start, held, err)
	return lease, held, err
}

// Lock acquires the lock. If the lock is not free, Lock queues and waits until ctx ends.
// lockcore.Mutex.Lock describes it.
func (n *Name) Lock(ctx context.Context, k Kind) (lease *Lease, held *Held, err error) {
	if wait := n.terms.cfg.Wait; wait > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, wait, fmt.Errorf("lockcore: waited for LeaseConfig.Wait, %s", wait))
		defer stop()
	}
	start := n.c.clock.Ticks()
	w := &waiter{Name: n}
	if !readiness.Answers(ctx) { // not a campaign: candidates wait for long, and report their own failures
		w.interval = firstLog
		ctx = readiness.WithAnswers(ctx, w.answered)
		defer w.requests.Stop()
	}
	var last acquireReply
	if n.c.quorum == nil {
		lease, last, err = w.queue(ctx, k)
	} else {
		lease, last, err = w.contend(ctx, k)
	}
	n.c.metrics.countAcquire(k.Label(), n.c.clock.Ticks()-start, nil, err)
	if errors.Is(err, ErrNotAcquired) && ctx.Err() != nil && last.holder != "" {
		held = n.heldBy(&last)
		if held.TTL >= 0 { // it is as old as the reply
			held.TTL = max(0, held.TTL-(n.c.clock.Now()-last.t0))
		}
	}
	return lease, held, err
}

// queue queues an attempt and waits until it is granted or ctx ends. last is the last reply with a holder.
func (w *waiter) queue(ctx context.Context, k Kind) (lease *Lease, last acquireReply, err error) {
	n := w.Name
	messages := n.c.wire.Messages(n.keys.name)
	if !messages.Up() {
		// An attempt must subscribe before it joins the queue. A free lock is acquired without this.
		lease, last, err = n.tryOnce(ctx, k, 0)
		if lease != nil || err != nil && DelayOf(err) == nil {
			return lease, last, err
		}
	}
	defer messages.Start(ctx)()
	a, err := n.begin(ctx, k, true)
	if err != nil {
		return nil, last, err
	}
	defer func() {
		if lease == nil {
			a.abandon()
		}
	}()
	waiting := n.c.metrics.kind(k.Label()).queue().waiting
	waiting.Inc()
	defer waiting.Dec()
	r, err := a.retryAcquire(ctx, modeJoin, 0)
	for {
		if delayed := DelayOf(err); delayed != nil {
			if err := a.pause(ctx, delayed); err != nil {
				return nil, last, err
			}
			mode := modeJoin
			if a.score != "" {
				mode = modeCheck
			}
			r, err = a.retryAcquire(ctx, mode, 0)
			continue
		}
		if r.code >= answerHead && r.code <= answerBusy { // another attempt holds the lock
			last = r
			if w.due && err == nil {
				w.logHolder(r)
			}
		}
		lease, err = a.makeLease(ctx, &r, err)
		switch notified := time.Duration(a.notifiedAt.Load()); {
		case err != nil:
			return nil, last, err
		case notified == 0: // no message about a grant has arrived
		case lease != nil:
			n.c.metrics.handover.Observe((n.c.clock.Now() - notified).Seconds())
		case notified > r.t0:
			// The server may have made the grant after this reply, although the message arrived
			// before the reply. The next reply decides.
		default: // the grant has lapsed
			a.notifiedAt.Store(0)
			n.c.metrics.lapsed.Inc()
		}
		if lease != nil {
			return lease, last, nil
		}
		if r.left == -1*time.Millisecond && !a.warnedNoTTL { // PTTL is -1 for a key without a TTL
			a.warnedNoTTL = true
			n.c.log.Error(errNoTTL, "waiting for a lock without TTL", "name", n.keys.name)
		}
		if err := a.await(ctx, r, w); err != nil {
			return nil, last, err
		}
		mode := modeCheck
		switch r.code {
		case answerBusy:
			mode = modeJoin
		case answerNotQueued:
			mode = modeJoin
			a.wakeOthers(r.t0)
		}
		r, err = a.retryAcquire(ctx, mode, 0)
	}
}

var errNoTTL = errors.New("lockcore: another program wrote the key, and it may never expire")

// pause waits for the rest of a server's delay. It returns an error if ctx or the Client has ended.
func (a *Attempt) pause(ctx context.Context, delayed *wire.DelayError) error {
	switch {
	case retry.Sleep(ctx, delayed.Left, a.c.closing):
		return nil
	case ctx.Err() != nil:
		return errors.Join(ended(ctx), delayed)
	}
	return ErrClosed
}

// await waits until the attempt must send its next acquire. It returns an error if ctx or the Client has ended.
func (a *Attempt) await(ctx context.Context, r acquireReply, w *waiter) error {
	if r.code == answerNotQueued {
		return nil
	}
	refresh := a.terms.refresh()
	if !a.c.wire.Messages(a.keys.name).Up() {
		refresh = min(refresh, time.Second/2) // without a subscription, no message tells about a grant
	}
	refresh = refresh*9/10 + rand.N(refresh/5) //nolint:gosec // jitter
	next := a.c.clock.Now() + refresh
	if r.code == answerHead && r.left >= 0 { // 2 ms later, the lock has surely expired
		next = min(next, a.c.clock.Now()+r.left+2*time.Millisecond)
	}
	if left, ok := a.servable(ctx); ok && a.servedUntil > 0 {
		// If round trips have become shorter, the attempt asks for a longer time in the queue.
		longer := a.c.clock.Now() + left - a.servedUntil
		if longer > time.Millisecond+time.Duration(a.c.roundTrip.Load()) {
			next = min(next, a.servedUntil)
		}
	}
	for {
		timer := time.NewTimer(max(0, next-a.c.clock.Now()))
		select {
		case <-timer.C:
			return nil
		case <-w.tick():
			timer.Stop()
			if w.isDue() {
				return nil
			}
		case <-a.wake:
			timer.Stop()
			if a.checkDue.Swap(false) {
				return nil
			}
			if left := a.lockEndsIn.Swap(0); left > 0 {
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
