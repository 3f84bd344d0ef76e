package lockcore

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
)

// A ReentrantMutex is a named lock that one owner holds at a time, with any number of
// leases. Go has no thread identity, so the owner is a text that the caller chooses. All
// goroutines and processes with the same owner share the lock.
//
// Each Lock returns a Lease of its own, which is renewed and released separately. If a
// process dies, its leases expire, and the owner's leases in other processes are not
// affected. An owner that holds the lock acquires it again without queueing. Other owners
// are served in order of arrival after its last lease has ended.
//
// A lease has the token of the owner's newest lease in the same Client, if that lease is valid when Lock is
// called. Otherwise it has a greater token than all earlier leases, even if the owner holds the lock in another
// process. A resource that has seen the new token refuses the earlier leases.
//
// A ReentrantMutex is the write side of an RWMutex, for programs without readers. If an RWMutex of the same name
// is used, too, the owner may also read, and Lock may return ErrUpgrade.
//
// A ReentrantMutex has no state of its own and is safe for concurrent use.
type ReentrantMutex struct{ mutex *Mutex }

// ReentrantMutex returns the lock of a name for an owner. Both follow the rules for names of Client.Mutex, but an owner
// may also begin with job/ or election/. ReentrantMutex sends nothing. The error is a *noonlock.ConfigError.
func (c *Client) ReentrantMutex(name, owner string, cfg LeaseConfig) (*ReentrantMutex, error) {
	entry, err := c.ownedLock(name, lock.ModeWrite, owner, cfg)
	if err != nil {
		return nil, err
	}
	return &ReentrantMutex{entry}, nil
}

// TryLock acquires the lock if the owner holds it, or if it is free and the queue is
// empty. Its errors are the errors of Mutex.TryLock.
func (m *ReentrantMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.mutex.tryLock(ctx, "try reentrant lock")
}

// Lock acquires the lock, at once if the owner holds it. Otherwise it queues and waits
// until ctx ends. Its errors are the errors of Mutex.Lock.
func (m *ReentrantMutex) Lock(ctx context.Context) (*Lease, error) {
	return m.mutex.lock(ctx, "reentrant lock")
}
