package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// exampleClient is a Client on a Redis server inside the process, so that the examples run
// anywhere. An application passes its own *redis.Client to lockcore.New.
func exampleClient() (c *lockcore.Client, done func()) {
	r, err := lockcoretest.StartRedis()
	if err != nil {
		panic(err)
	}
	c, err = lockcore.New(r.Client(), lockcore.Config{Identity: "replica-1"})
	if err != nil {
		panic(err)
	}
	return c, func() {
		_ = c.Close(context.Background())
		r.Close()
	}
}

// A Mutex has one holder. The holder passes its token to the resource that it writes to.
func ExampleMutex() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	m, err := c.Mutex("orders", lockcore.LeaseConfig{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err) // an invalid name or configuration
		return
	}
	lease, err := m.Lock(ctx) // waits in the queue
	if err != nil {
		fmt.Println(err)
		return
	}
	first := lease.Token()

	_, err = m.TryLock(ctx)
	if held, ok := errors.AsType[*lockcore.HeldError](err); ok {
		fmt.Println("held by", held.Holder)
	}

	fmt.Println(lease.Unlock(ctx))
	fmt.Println(errors.Is(context.Cause(lease.Context()), lockcore.ErrReleased))

	lease, err = m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("a later lease has a greater token:", lease.Token() > first)
	// Output:
	// held by replica-1
	// <nil>
	// true
	// a later lease has a greater token: true
}

// An owner can acquire the lock any number of times, for example in a function that holds
// the lock and calls another function that acquires it, too.
func ExampleReentrantMutex() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	m, err := c.ReentrantMutex("orders", "request-17", lockcore.LeaseConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	outer, err := m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	inner, err := m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("one token:", inner.Token() == outer.Token())

	other, err := c.ReentrantMutex("orders", "request-18", lockcore.LeaseConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = other.TryLock(ctx)
	fmt.Println("another owner:", errors.Is(err, lockcore.ErrNotAcquired))

	for _, lease := range []*lockcore.Lease{inner, outer, outer} {
		left, err := lease.Release(ctx)
		fmt.Println(left, "left, not held:", errors.Is(err, lockcore.ErrNotHeld))
	}
	// Output:
	// one token: true
	// another owner: true
	// 1 left, not held: false
	// 0 left, not held: false
	// 0 left, not held: true
}

// Many owners read, or one writes. A writer can become a reader without a gap.
func ExampleRWMutex() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	owner := func(name string) *lockcore.RWMutex {
		rw, err := c.RWMutex("catalogue", name, lockcore.RWConfig{
			Read:  lockcore.LeaseConfig{TTL: 5 * time.Second}, // a crashed reader blocks writers for that long
			Write: lockcore.LeaseConfig{TTL: 30 * time.Second},
		})
		if err != nil {
			panic(err)
		}
		return rw
	}
	a, b := owner("a"), owner("b")
	writes, err := a.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = b.TryRLock(ctx)
	fmt.Println("b may read while a writes:", err == nil)

	if err := writes.Downgrade(ctx); err != nil {
		fmt.Println(err)
		return
	}
	_, err = b.TryRLock(ctx)
	fmt.Println("b may read while a reads:", err == nil)

	_, err = b.Lock(ctx) // could deadlock: a may want to upgrade, too
	fmt.Println("b may upgrade:", !errors.Is(err, lockcore.ErrUpgrade))
	// Output:
	// b may read while a writes: false
	// b may read while a reads: true
	// b may upgrade: false
}
