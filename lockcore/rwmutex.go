package lockcore

import (
	"context"
	"errors"
	"strings"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
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
// Overlapping leases of an owner have the same token, with one exception: an owner that
// starts to write while it reads gets a new token. Its earlier leases keep their token. As with
// ReentrantMutex, leases overlap until the server's entry of the first one ends.
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
// election/. RWMutex sends nothing. The error is a *ConfigError.
func (c *Client) RWMutex(name, owner string, cfg RWConfig) (*RWMutex, error) {
	read, err := c.ownedLock(name, ownedKind{modeRead, owner}, cfg.Read)
	if err != nil {
		return nil, sideError("RWConfig.Read", err)
	}
	write, err := c.ownedLock(name, ownedKind{modeWrite, owner}, cfg.Write)
	if err != nil {
		return nil, sideError("RWConfig.Write", err)
	}
	return &RWMutex{read, write}, nil
}

// ownedLock returns one side of a lock with owners.
func (c *Client) ownedLock(name string, k ownedKind, cfg LeaseConfig) (*Mutex, error) {
	m, err := c.lock(name, k, cfg)
	if err != nil {
		return nil, err
	}
	if err := checkName("owner", k.owner); err != nil {
		return nil, err
	}
	return m, nil
}

// sideError adds to a *ConfigError which of the two LeaseConfigs is invalid.
func sideError(side string, err error) error {
	if refused, ok := errors.AsType[*ConfigError](err); ok {
		if field, found := strings.CutPrefix(refused.Field, "LeaseConfig."); found {
			return &ConfigError{Field: side + "." + field, Value: refused.Value, Rule: refused.Rule}
		}
	}
	return err
}

// Name returns the name of the lock.
func (rw *RWMutex) Name() string { return rw.read.keys.name }

// TryRLock acquires the lock for reading if it need not wait. Its errors are those of
// Mutex.TryLock.
func (rw *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.read.tryLock(ctx)
	return lease, opError("try read lock", rw.Name(), err)
}

// RLock acquires the lock for reading. If necessary it queues and waits until ctx ends.
// Its errors are those of Mutex.Lock.
func (rw *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.read.lock(ctx)
	return lease, opError("read lock", rw.Name(), err)
}

// TryLock acquires the lock for writing if it need not wait. Its errors are those of
// Mutex.TryLock, and ErrUpgrade if the owner reads and other owners read too.
func (rw *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.write.tryLock(ctx)
	return lease, opError("try write lock", rw.Name(), err)
}

// Lock acquires the lock for writing. If necessary it queues and waits until ctx ends.
// Its errors are those of Mutex.Lock, and ErrUpgrade if the owner reads and other owners
// read too.
func (rw *RWMutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := rw.write.lock(ctx)
	return lease, opError("write lock", rw.Name(), err)
}

// Downgrade turns a write lease of an RWMutex or a ReentrantMutex into a read lease. No other owner can write
// in between. Waiting readers in front of the first waiting writer are granted, unless the
// owner has another write lease. The lease keeps its token, context and timing. A second
// Downgrade has no effect and returns nil.
//
// If the server does not answer, Downgrade retries until ctx or the lease ends. If the
// error is ErrUnknown, the downgrade may have been applied, or may be applied later: do
// not write any more. The lease is still held, unless the error is ErrNotHeld. For a lease
// of another kind, the error is ErrNotWriter.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	ctx = input.Context(ctx)
	k, ok := l.a.kind.(ownedKind)
	if !ok || k.mode != modeWrite {
		return opError(op, l.Name(), ErrNotWriter)
	}
	if cause := l.life.Err(); cause != nil {
		return opError(op, l.Name(), ErrNotHeld, cause)
	}
	n, err := l.downgrade(ctx)
	cause := l.life.Err()
	switch {
	case err != nil && cause != nil:
		return opError(op, l.Name(), ErrNotHeld, cause, err)
	case err != nil:
		return opError(op, l.Name(), err)
	case n == 0:
		if lost := l.c.topology.lossOf(ctx, l.a); l.end(lost) {
			l.c.noteLoss(l, lost)
		}
		return opError(op, l.Name(), ErrNotHeld, l.life.Cause())
	}
	return nil
}

func (l *Lease) downgrade(ctx context.Context) (int64, error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	s, keys := l.c.scripts.ownedDowngrade, l.a.keys
	req := s.Call(wire.Keys(keys.lock, keys.fence, keys.queue, keys.seen), l.a.value, l.a.terms.keepArg, keys.channels)
	retry := l.c.newRetry(l.a.terms.timeout(), 0)
	answer, err := retry.Send(bound, l.c.wire, keys.name, req, wire.MayRetryLater)
	if err != nil {
		return 0, errors.Join(context.Cause(bound), err)
	}
	return req.Number(answer, nil)
}
