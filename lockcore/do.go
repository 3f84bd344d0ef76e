package lockcore

import (
	"context"
	"errors"
)

// Do acquires the mutex of a name, as Mutex.Lock does, and runs fn. The context of fn is done when ctx is done or the lease ends, whichever comes
// first. Do releases the lock after fn has returned, panicked or called runtime.Goexit.
//
// The error is that of fn, joined with that of Lease.Unlock, which has the reason if the
// lease ended before fn returned. If the lock was not acquired, fn is not called and the
// error is that of Mutex.Lock.
func (c *Client) Do(ctx context.Context, name string, cfg LeaseConfig, fn func(ctx context.Context, token uint64) error) (err error) {
	if fn == nil {
		return refuse("fn", "a function", "nil")
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
		err = errors.Join(err, lease.Unlock(context.WithoutCancel(ctx)))
	}()
	return fn(work, lease.Token())
}
