package lockcore

import (
	"context"
	"errors"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
)

// An RWMutex is a named lock that any number of owners hold for reading, or one owner
// holds for writing. As with ReentrantMutex, the owner is a text that the caller chooses,
// and each acquisition returns a Lease of its own.
//
// What an owner gets depends on what it holds:
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
// Tokens are those of ReentrantMutex, with one exception: an owner that
// starts to write while it reads gets a new token. Its earlier leases keep their token.
//
// An RWMutex has no state of its own and is safe for concurrent use.
type RWMutex struct{ read, write *Mutex }

// RWConfig configures the leases of an RWMutex. A reader that dies delays writers for
// Read.TTL at most. A writer that dies delays all other owners for Write.TTL at most. A
// lease keeps the timing of Write after Downgrade.
type RWConfig struct {
	Read, Write LeaseConfig
}

// RWMutex returns the lock of a name for an owner. Both are 1 to 200 bytes of UTF-8
// without control characters, spaces and braces. Names must not begin with job/ or
// election/. RWMutex sends nothing. The error is a *noonlock.ConfigError.
func (c *Client) RWMutex(name, owner string, cfg RWConfig) (*RWMutex, error) {
	read, err := c.ownedLock(name, lock.ModeRead, owner, cfg.Read)
	if err != nil {
		return nil, sideError("RWConfig.Read", err)
	}
	write, err := c.ownedLock(name, lock.ModeWrite, owner, cfg.Write)
	if err != nil {
		return nil, sideError("RWConfig.Write", err)
	}
	return &RWMutex{read, write}, nil
}

// ownedLock returns one side of a lock with owners.
func (c *Client) ownedLock(name, mode, owner string, cfg LeaseConfig) (*Mutex, error) {
	m, err := c.lock(name, lock.Owned(mode, owner), cfg)
	if err == nil {
		err = lock.CheckName("owner", owner)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// sideError adds to a *noonlock.ConfigError which of the two LeaseConfigs is invalid.
func sideError(side string, err error) error {
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		if field, found := strings.CutPrefix(refused.Field, "LeaseConfig."); found {
			return &noonlock.ConfigError{Package: "lockcore", Field: side + "." + field, Value: refused.Value, Rule: refused.Rule}
		}
	}
	return err
}

// Name returns the name of the lock.
func (rw *RWMutex) Name() string { return rw.read.Name() }

// TryRLock acquires the lock for reading if it need not wait. Its errors are those of
// Mutex.TryLock.
func (rw *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return rw.read.tryLock(ctx, "try read lock")
}

// RLock acquires the lock for reading. If necessary it queues and waits until ctx ends.
// Its errors are those of Mutex.Lock.
func (rw *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return rw.read.lock(ctx, "read lock")
}

// TryLock acquires the lock for writing if it need not wait. Its errors are those of
// Mutex.TryLock, and ErrUpgrade if the owner reads and other owners read too.
func (rw *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return rw.write.tryLock(ctx, "try write lock")
}

// Lock acquires the lock for writing. If necessary it queues and waits until ctx ends.
// Its errors are those of Mutex.Lock, and ErrUpgrade if the owner reads and other owners
// read too.
func (rw *RWMutex) Lock(ctx context.Context) (*Lease, error) {
	return rw.write.lock(ctx, "write lock")
}
