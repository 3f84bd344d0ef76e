package lockcore

import (
	"context"
	"strconv"

	"github.com/noonlock/noonlock/internal/lock"
)

// A Semaphore is a named lock that at most n leases hold at a time. Waiters are served in order of
// arrival. A holder that dies frees its slot when its TTL has passed.
//
// Each lease has a slot, from 0 to n-1, which no other lease has at the same time. Its token is greater
// than the tokens of all earlier leases of the name. A resource must compare a token with the tokens of its
// slot only: a check by name would refuse all leases but the newest one.
//
// The size n is stored with the name: the first grant stores it, and it is forgotten a week after the last grant or
// renewal. Replicas that give another n, as during a rollout, use the stored size, and log that once. Resize changes
// it.
//
// A Semaphore has no state of its own and is safe for concurrent use.
type Semaphore struct{ slots *Mutex }

// maxSlots is the greatest size, as a script takes longer with more slots.
const maxSlots = 1000

// Semaphore returns the semaphore of a name with n slots, 1 to 1000, unless another size is stored. The name follows
// the rules of Client.Mutex, and is of one kind. Semaphore sends nothing. The error is a *noonlock.ConfigError, also
// for a Client of a quorum: a majority of the servers does not bound the number of leases.
func (c *Client) Semaphore(name string, n int, cfg LeaseConfig) (*Semaphore, error) {
	if err := checkSize(n); err != nil {
		return nil, err
	}
	m, err := c.lock(name, lock.Slots(n), cfg)
	if err != nil {
		return nil, err
	}
	return &Semaphore{m}, nil
}

func checkSize(n int) error {
	if n < 1 || n > maxSlots {
		return lock.Refuse("n", "from 1 to "+strconv.Itoa(maxSlots), n)
	}
	return nil
}

// TryAcquire acquires a slot if one is free and the queue is empty. Its errors are the errors of Mutex.TryLock.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Lease, error) {
	return s.slots.tryLock(ctx, "try to acquire a slot of")
}

// Acquire acquires a slot. If none is free, Acquire queues and waits until ctx ends. Its errors are the errors of
// Mutex.Lock. Lease.Unlock gives the slot back.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return s.slots.lock(ctx, "acquire a slot of")
}

// Resize stores another size, 1 to 1000, for all replicas. With a greater size, waiters are served at once. With a
// smaller size, no lease ends: nothing is granted until fewer than n are held. If the error matches
// ErrUnknown, also together with ErrWrongKind, the request may still arrive, and then also undo a later Resize;
// repeat the call. ErrWrongKind means that the name is of another kind of lock.
func (s *Semaphore) Resize(ctx context.Context, n int) error {
	err := checkSize(n)
	if err == nil {
		err = s.slots.name.Resize(ctx, n)
	}
	return lock.OpError("resize", s.slots.name.Name(), err)
}
