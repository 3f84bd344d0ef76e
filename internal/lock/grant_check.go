package lock

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// sendRelease sends the release of an attempt once.
func (a *Attempt) sendRelease(ctx context.Context, withdraw bool, timeout time.Duration) (int64, error) {
	req := a.kind.Release(a, withdraw)
	answer, err := a.c.wire.Send(ctx, a.keys.name, req, timeout)
	return a.readServed(req, answer, err)
}

// readServed reads the answer of a script that serves the queue: a number, or a list of the number and a time in ms if
// the script has granted the lock to a waiter. At that time, the Client checks whether the grant was confirmed.
func (a *Attempt) readServed(req wire.Request, answer any, err error) (int64, error) {
	if list, ok := answer.([]any); ok && len(list) == 2 {
		in, err := req.Number(list[1], err)
		if err != nil {
			return 0, err
		}
		a.checkLater(time.Duration(in) * time.Millisecond)
		answer = list[0]
	}
	return req.Number(answer, err)
}

// checkLater repeats a release after the given time, when a grant to a waiter has ended unless it was confirmed. If the
// waiter's process is frozen, the repeated release grants the lock to the next waiter. A later release of the name
// replaces the check, because the earlier grant was confirmed or has ended. The check of a Semaphore is not
// replaced, because other grants may be unconfirmed: a further check follows it.
func (a *Attempt) checkLater(in time.Duration) {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	name := a.keys.name
	if former := c.checks[name]; former != nil {
		if _, isSemaphore := a.kind.(slotKind); isSemaphore {
			former.next = c.clock.Now() + in
			return
		}
		former.timer.Stop()
	}
	check := &grantCheck{a: a}
	check.timer = time.AfterFunc(in+lease.Margin(in), func() {
		c.mu.Lock()
		current := c.checks[name] == check
		if current {
			delete(c.checks, name)
		}
		c.mu.Unlock()
		if current {
			if check.next > 0 {
				a.checkLater(check.next - c.clock.Now())
			}
			check.release(c.newRetry(a.terms.timeout(), max(a.terms.ttl, tombTTL)))
		}
	})
	c.checks[name] = check
}

func (check *grantCheck) release(retry wire.Retry) {
	check.a.c.Background(func(ctx context.Context) {
		_ = retry.Do(ctx, wire.MayRetryLater, func() error {
			_, err := check.a.sendRelease(ctx, false, retry.Timeout())
			return err
		})
	})
}
