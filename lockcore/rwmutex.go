package lockcore

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
)

// An RWMutex is a named lock that any number of owners hold for reading, or one owner
// holds for writing. As with ReentrantMutex, the owner is a text that the caller chooses,
// and each acquisition returns a Lease of its own.
//
// The result depends on the leases that the owner holds:
//
//	        holds nothing           reads                       writes
//	RLock   waits for the writer    at once                     at once
//	        and waiting writers
//	Lock    waits for all owners    at once if it alone reads,  at once
//	                                else ErrUpgrade
//
// Waiters are served in order of arrival. Adjacent readers in the queue are granted
// together. A reader does not pass a waiting writer, so neither side starves.
//
// Tokens follow the rules of ReentrantMutex, with one exception: an owner that
// starts to write while it reads gets a new token. Its earlier leases keep their token.
//
// An RWMutex has no state of its own and is safe for concurrent use.
type RWMutex struct{ read, write *Mutex }

// RWMutex returns the lock of a name for an owner. Both follow the rules for names of Client.Mutex, but an owner may
// also begin with job/ or election/. RWMutex sends nothing. The error is a *noonlock.ConfigError.
//
// A reader that dies delays writers for its TTL, and a writer that dies delays all other owners. For another TTL of
// writers, make another RWMutex of the same name.
func (c *Client) RWMutex(name, owner string, cfg LeaseConfig) (*RWMutex, error) {
	read, err := c.ownedLock(name, lock.ModeRead, owner, cfg)
	if err != nil {
		return nil, err
	}
	write, err := c.ownedLock(name, lock.ModeWrite, owner, cfg)
	if err != nil {
		return nil, err
	}
	return &RWMutex{read, write}, nil
}

// ownedLock returns one side of a lock with owners.
func (c *Client) ownedLock(name, mode, owner string, cfg LeaseConfig) (*Mutex, error) {
	if err := lock.CheckName("owner", owner); err != nil {
		return nil, err
	}
	return c.lock(name, lock.Owned(mode, owner), cfg)
}

// TryRLock acquires the lock for reading if it need not wait. Its errors are the errors of Mutex.TryLock.
func (rw *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return rw.read.tryLock(ctx, "try read lock")
}

// RLock acquires the lock for reading. If necessary it queues and waits until ctx ends.
// Its errors are the errors of Mutex.Lock.
func (rw *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return rw.read.lock(ctx, "read lock")
}

// TryLock acquires the lock for writing if it need not wait. Its errors are the errors of
// Mutex.TryLock, and ErrUpgrade if the owner reads and other owners read too.
func (rw *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return rw.write.tryLock(ctx, "try write lock")
}

// Lock acquires the lock for writing. If necessary it queues and waits until ctx ends.
// Its errors are the errors of Mutex.Lock, and ErrUpgrade if the owner reads and other owners
// read too.
func (rw *RWMutex) Lock(ctx context.Context) (*Lease, error) {
	return rw.write.lock(ctx, "write lock")
}

// Downgrade turns a write lease of the lock into a read lease. No other owner can write
// in between. Waiting readers in front of the first waiting writer are granted, unless the
// owner has another write lease. The lease keeps its token, context and timing. A second
// Downgrade has no effect and returns nil.
//
// If the server does not answer, Downgrade retries until ctx or the lease ends. If the error is ErrUnknown or
// ErrWrongKind, the downgrade may have been applied, or may be applied later: do
// not write any more. The lease is still held, unless the error is ErrNotHeld. For any other
// lease, also of another owner or Client, the error is ErrNotWriter.
func (rw *RWMutex) Downgrade(ctx context.Context, lease *Lease) error {
	switch {
	case lease == nil:
		return ErrNotHeld
	case lease.lent:
		return lock.OpError("downgrade", lease.Name(), errLent)
	case !lease.held.Of(rw.write.name, rw.write.kind):
		return lock.OpError("downgrade", lease.Name(), ErrNotWriter)
	}
	return lease.held.Downgrade(ctx)
}
