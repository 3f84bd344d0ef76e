package ledger

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// A Lock is a mutex under the name of a job that has no ledger. It is for work without
// ticks. Locks of the application cannot have its name.
type Lock struct {
	lock *lock.Name
	name string
}

// NewLock returns the lock of a job. It sends no request. The error is a
// *lockcore.ConfigError.
func NewLock(c *lockcore.Client, job string, cfg lockcore.LeaseConfig) (*Lock, error) {
	n, err := named(c, job, cfg)
	if err != nil {
		return nil, err
	}
	n.Client().Expect("mutex")
	return &Lock{lock: n, name: job}, nil
}

// Prepare returns an error if Lock may wait although it could never hold the lock: a right
// is missing that only a holder needs.
func (l *Lock) Prepare(ctx context.Context) error {
	return opError("lock", l.name, l.lock.CheckRights(ctx, l.lock.Client().MutexScripts()...))
}

// Lock waits in the queue of the lock and holds it, as lockcore.Mutex.Lock does.
func (l *Lock) Lock(ctx context.Context) (*lock.Lease, error) {
	lease, err := l.lock.Lock(ctx, l.lock.Client().Mutex())
	return lease, opError("lock", l.name, err)
}
