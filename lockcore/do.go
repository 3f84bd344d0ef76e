package lockcore

import (
	"context"
	"errors"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/stopping"
)

// Do acquires the mutex of a name, as Mutex.Lock does, and runs fn. The context of fn is done
// when ctx is done or the lease ends, whichever comes first. FromContext returns the lease of that context, with the
// fencing token. LeaseConfig.Wait limits the wait, and not the work. Do releases the lock after fn
// has returned, panicked or called runtime.Goexit. When ctx is done, Do waits for the answer for one
// TTL or 10 s, whichever is shorter.
//
// Do returns the error of fn, joined with the error of Lease.Unlock, which has the reason if the
// lease ended before fn returned. If the lock was not acquired, Do returns the error of Mutex.Lock and does not
// call fn.
func (c *Client) Do(ctx context.Context, name string, cfg LeaseConfig, fn func(ctx context.Context) error) (err error) {
	if fn == nil {
		return lock.Refuse("fn", "a function", "nil")
	}
	m, err := c.Mutex(name, cfg)
	if err != nil {
		return err
	}
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	work, stop := lease.Bind(ctx)
	defer func() {
		stop()
		deadline, done := stopping.New(ctx, lease.held.Detached(), 0)
		defer done()
		leaving, cancel := deadline.Context(ctx, 0)
		defer cancel()
		err = errors.Join(err, lease.Unlock(leaving))
	}()
	return fn(work)
}
