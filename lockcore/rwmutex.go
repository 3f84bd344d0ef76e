package lockcore

import (
	"context"
	"errors"
	"strings"

	"github.com/noonlock/noonlock/internal/wire"
)

// An RWMutex is a named lock that any number of owners hold for reading, or one for
// writing. As with ReentrantMutex the owner is a text that the caller gives, and
// each lock has a Lease of its own that ends by itself.
//
// What an owner is given, and what waits:
//
//	            it has nothing     it reads                    it writes
//	RLock       waits for a        at once                     at once
//	            writer, and behind
//	            one that waits
//	Lock        waits for all      at once if it alone reads,  at once
//	                               else ErrUpgrade
//
// Who waits is served in order of arrival: readers that stand together are served
// together, and no reader passes a writer that waits, so neither side starves.
//
// All of an owner's leases that overlap have one token; an owner that comes to write
// while it reads has a new one from there on. A lease keeps the token that it was
// granted.
//
// It is a handle without state: make it once or for each use, in any number of
// goroutines and processes.
type RWMutex struct{ read, write *Mutex }

// RWConfig is how the leases of an RWMutex behave: a crashed reader holds writers up
// for no longer than Read.TTL, a crashed writer everybody for Write.TTL. The lease of
// a Downgrade keeps the timing of Write.
type RWConfig struct {
	Read, Write LeaseConfig
}

// RWMutex returns the lock of a name for an owner; both are 1 to 200 bytes of UTF-8
// without control characters, spaces and braces. It sends nothing. The error is a
// *ConfigError.
func (c *Client) RWMutex(name, owner string, cfg RWConfig) (*RWMutex, error) {
	read, err := c.ownedLock(name, ownedKind{readWriteKind, modeRead, owner}, cfg.Read)
	if err != nil {
		return nil, sideError("RWConfig.Read", err)
	}
	write, err := c.ownedLock(name, ownedKind{readWriteKind, modeWrite, owner}, cfg.Write)
	if err != nil {
		return nil, sideError("RWConfig.Write", err)
	}
	return &RWMutex{read, write}, nil
}

// sideError says which of the two LeaseConfigs was refused.
func sideError(side string, err error) error {
	if refused, ok := errors.AsType[*ConfigError](err); ok {
		if field, found := strings.CutPrefix(refused.Field, "LeaseConfig."); found {
			return &ConfigError{Field: side + "." + field, Value: refused.Value, Rule: refused.Rule}
		}
	}
	return err
}

// Name is the name of the lock.
func (rw *RWMutex) Name() string { return rw.read.keys.name }

// TryRLock takes the lock for reading if that needs no waiting. It fails as
// Mutex.TryLock does.
func (rw *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.read.tryLock(ctx)
	if err != nil {
		return nil, opError("lockcore: try read lock", rw.Name(), err)
	}
	return lease, nil
}

// RLock takes the lock for reading, waiting in line for it until ctx ends. It fails
// as Mutex.Lock does.
func (rw *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.read.lock(ctx)
	if err != nil {
		return nil, opError("lockcore: read lock", rw.Name(), err)
	}
	return lease, nil
}

// TryLock takes the lock for writing if that needs no waiting. It fails as
// Mutex.TryLock does, and with ErrUpgrade as Lock does.
func (rw *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := rw.write.tryLock(ctx)
	if err != nil {
		return nil, opError("lockcore: try write lock", rw.Name(), err)
	}
	return lease, nil
}

// Lock takes the lock for writing, waiting in line for it until ctx ends. It fails
// as Mutex.Lock does, and with ErrUpgrade if the owner reads and is not the only one.
func (rw *RWMutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := rw.write.lock(ctx)
	if err != nil {
		return nil, opError("lockcore: write lock", rw.Name(), err)
	}
	return lease, nil
}

// Downgrade makes a lease that writes one that reads, without a gap in which another
// could write; readers that wait are let in up to the first writer in line, unless the
// owner has another lease that writes. The lease keeps its token, its context and its
// timing. To downgrade twice changes nothing.
//
// If nobody answers it asks again until ctx or the lease ends. An error that is
// ErrUnknown means that it may have been done, or be done yet: write no more. The
// lease is held all the same, unless the error is ErrNotHeld. A lease that was not
// made by RWMutex.Lock or RWMutex.TryLock is refused with ErrNotWriter.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "lockcore: downgrade"
	k, ok := l.a.kind.(ownedKind)
	switch {
	case ctx == nil:
		return opError(op, l.Name(), refuse("ctx", "a context", "%s", "nil"))
	case !ok || k.letters != readWriteKind || k.mode != modeWrite:
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
		if l.end(ErrLeaseLost) {
			l.c.noteLoss(l, ErrLeaseLost)
		}
		return opError(op, l.Name(), ErrNotHeld, ErrLeaseLost)
	}
	return nil
}

func (l *Lease) downgrade(ctx context.Context) (int64, error) {
	bound, stop := l.Bind(ctx)
	defer stop()
	s, keys := l.c.scripts.ownedDowngrade, l.a.keys
	req := s.Call([]string{keys.lock, keys.fence, keys.queue, keys.seen}, l.a.value, l.a.keepTokens())
	answer, err := l.c.newRetry(l.a.terms.timeout(), 0).Send(bound, l.c.wire, req, wire.MayRetryLater)
	if err != nil {
		return 0, errors.Join(context.Cause(bound), err)
	}
	return req.Number(answer, nil)
}
