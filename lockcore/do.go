package lockcore

import (
	"context"
	"errors"
)

// Do runs fn under the lock of a name with the default LeaseConfig, waiting in
// line for it. fn's context is done when ctx is or when the lease ends; the lock
// is given back only after fn has returned, panicked or called Goexit. The error
// is fn's, joined with why the lease ended if it did not last.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, token uint64) error) (err error) {
	if fn == nil {
		return refuse("fn", "a function", "%s", "nil")
	}
	m, err := c.Mutex(name, LeaseConfig{})
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
