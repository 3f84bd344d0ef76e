package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

const (
	// firstPause and longestPause are means of the random pauses between two tries. A pause is between 0 and twice
	// its mean.
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond

	// splitPause limits the random pause after a message. All waiters receive the message at the same
	// time. Without a pause, each of them could get a minority of the servers. The limit doubles after each of
	// these splits.
	splitPause = 4 * time.Millisecond
)

// contend acquires the lock of a quorum. There is no queue: each try is a new attempt,
// which is undone if it fails. As in a queue, a wait outlasts an outage.
func (w *waiter) contend(ctx context.Context, k Kind) (lease *Lease, last acquireReply, err error) {
	n := w.Name
	lease, last, err = n.tryOnce(ctx, k, n.terms.timeout())
	if lease != nil || err != nil && !overtaken(err) && (!wire.MayRetry(err) || ctx.Err() != nil) {
		return lease, last, err
	}
	waiting := n.c.metrics.kind(k.Label()).queue().waiting
	waiting.Inc()
	defer waiting.Dec()
	freed := make(chan struct{}, 1)
	defer n.c.wire.Messages(n.keys.name).Watch(n.Channel("free", n.keys.name), func(string) {
		select {
		case freed <- struct{}{}:
		default:
		}
	})()
	pauses, split := retry.Growing(firstPause, longestPause, 2, 1), splitPause
	for {
		pause := pauses.NextBackOff()
		if errors.Is(err, members.ErrOvertaken) || errors.Is(err, members.ErrAhead) { // without a holder, there may be no message
			split = min(2*split, longestPause)
			pause = rand.N(split) //nolint:gosec // jitter
		}
		timer, due := time.NewTimer(pause), time.Now().Add(pause)
		select {
		case <-timer.C:
		case <-freed: // the message may be forged, and must not delay the try
			pauses.Reset()
			retry.Sleep(ctx, min(rand.N(split), time.Until(due)), n.c.closing) //nolint:gosec // jitter
		case <-ctx.Done():
		case <-n.c.closing:
		}
		timer.Stop()
		if ctx.Err() != nil { // its cause may be the error of another try
			return nil, last, ended(ctx)
		}
		var r acquireReply
		lease, r, err = n.tryOnce(ctx, k, n.terms.timeout())
		if r.holder != "" {
			last = r
			select {
			case <-w.tick():
				if w.isDue() {
					w.logHolder(r)
				}
			default:
			}
		}
		switch {
		case lease != nil:
			return lease, last, nil
		case err == nil, overtaken(err), wire.MayRetryLater(err) && ctx.Err() == nil:
		default:
			return nil, last, err
		}
	}
}

// overtaken reports whether a try failed because others tried at the same time, because its
// validity was over before the majority had answered, or because the servers wait after a loss of
// data.
func overtaken(err error) bool {
	few, _ := errors.AsType[*wire.NoQuorumError](err)
	return errors.Is(err, members.ErrOvertaken) || errors.Is(err, members.ErrAhead) || errors.Is(err, errSlowServer) || few != nil && few.Answered && !few.Permanent
}
