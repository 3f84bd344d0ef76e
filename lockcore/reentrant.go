package lockcore

import "context"

// A ReentrantMutex is a named lock that one owner holds at a time, as often as it
// likes. Go has no identity of a thread, so the owner is a text that the caller
// gives: whoever gives the same one, in whatever goroutine or process, holds the lock
// together with the others.
//
// Each Lock has a Lease of its own, renewed and released by itself: one whose process
// died ends with its own TTL, although the owner's other leases are renewed. All of
// an owner's leases that overlap have one token. An owner that holds the lock is let
// in past the line; the others are served in order of arrival when its last lease
// has ended.
//
// It is a handle without state: make it once or for each use, in any number of
// goroutines and processes.
type ReentrantMutex struct{ entry *Mutex }

// ReentrantMutex returns the lock of a name for an owner; both are 1 to 200 bytes of
// UTF-8 without control characters, spaces and braces. It sends nothing. The error
// is a *ConfigError.
func (c *Client) ReentrantMutex(name, owner string, cfg LeaseConfig) (*ReentrantMutex, error) {
	entry, err := c.ownedLock(name, ownedKind{reentrantKind, modeWrite, owner}, cfg)
	if err != nil {
		return nil, err
	}
	return &ReentrantMutex{entry}, nil
}

// ownedLock is one side of a lock with owners.
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

// Name is the name of the lock.
func (m *ReentrantMutex) Name() string { return m.entry.keys.name }

// TryLock takes the lock if the owner has it, or it is free and nobody stands in line
// for it. It fails as Mutex.TryLock does.
func (m *ReentrantMutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := m.entry.tryLock(ctx)
	if err != nil {
		return nil, opError("lockcore: try reentrant lock", m.Name(), err)
	}
	return lease, nil
}

// Lock takes the lock, at once if the owner has it, else waiting in line for it
// until ctx ends. It fails as Mutex.Lock does.
func (m *ReentrantMutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := m.entry.lock(ctx)
	if err != nil {
		return nil, opError("lockcore: reentrant lock", m.Name(), err)
	}
	return lease, nil
}
