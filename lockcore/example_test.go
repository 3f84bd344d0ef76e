package lockcore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/redisurl"
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

// A program reads from its environment where Redis is: on one server, behind Sentinels or in a cluster.
func ExampleNewFromOptions() {
	options, err := redisurl.Parse(cmp.Or(os.Getenv("LOCKS_URL"), "redis+sentinel://sentinel-1,sentinel-2?master=noon"))
	if err != nil {
		fmt.Println(err)
		return
	}
	options.ClientName = "orders"
	c, err := lockcore.NewFromOptions(options, lockcore.Config{}) // connects at the first use
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Close(context.Background()))

	options.ReadOnly = true
	_, err = lockcore.NewFromOptions(options, lockcore.Config{})
	fmt.Println(err)
	// Output:
	// <nil>
	// lockcore: opts.ReadOnly is set; it must be false, because a replica may not have the newest locks
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
	work, stop := lease.Bind(ctx) // the context of the work
	defer stop()
	fmt.Println(lease.Name(), "is held:", lease.Check() == nil && lease.Remaining() > 0)

	_, err = m.TryLock(ctx)
	if held, ok := errors.AsType[*lockcore.HeldError](err); ok {
		fmt.Println("held by", held.Holder)
	}

	fmt.Println(lease.Unlock(ctx))
	fmt.Println(errors.Is(context.Cause(lease.Context()), lockcore.ErrReleased), work.Err())

	lease, err = m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("a later lease has a greater token:", lease.Token() > first)
	// Output:
	// orders is held: true
	// held by replica-1
	// <nil>
	// true context canceled
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
		fmt.Println("not held:", errors.Is(lease.Unlock(ctx), lockcore.ErrNotHeld))
	}
	// Output:
	// one token: true
	// another owner: true
	// not held: false
	// not held: false
	// not held: true
}

// Many owners read, or one writes. A writer can become a reader without a gap.
func ExampleRWMutex() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	owner := func(name string) *lockcore.RWMutex {
		rw, err := c.RWMutex("catalogue", name, lockcore.LeaseConfig{TTL: 5 * time.Second}) // a crashed reader blocks writers for that long
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

	if err := a.Downgrade(ctx, writes); err != nil {
		fmt.Println(err)
		return
	}
	_, err = b.RLock(ctx)
	fmt.Println("b may read while a reads:", err == nil)

	_, err = b.TryLock(ctx) // could deadlock: a may want to upgrade, too
	fmt.Println("b may upgrade:", !errors.Is(err, lockcore.ErrUpgrade))
	// Output:
	// b may read while a writes: false
	// b may read while a reads: true
	// b may upgrade: false
}

// An operator finds the holder of a lock, which is stuck, and releases the lock.
func ExampleClient_ForceRelease() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	m, err := c.Mutex("orders", lockcore.LeaseConfig{})
	if err != nil {
		panic(err)
	}
	if _, err = m.Lock(ctx); err != nil {
		panic(err)
	}
	names, err := lockcore.Locks(ctx, c, nil)
	if err != nil {
		panic(err)
	}
	seen, err := c.Inspect(ctx, names[0])
	if err != nil {
		panic(err)
	}
	fmt.Println(seen.Name, "is held by", seen.Holders[0].Identity)
	n, err := c.ForceRelease(lockcore.WithOperator(ctx, lockcore.Operator{Who: "ann@host", Reason: "it is stuck"}), seen)
	fmt.Println("released:", n, err)
	past, err := c.ForcedReleases(ctx, "orders")
	fmt.Println("reason:", past[0].By.Reason, err)
	// Output:
	// orders is held by replica-1
	// released: 1 <nil>
	// reason: it is stuck <nil>
}

// A lock on a majority of three servers.
func ExampleNewQuorum() {
	servers := []redis.UniversalClient{}
	for range 3 {
		r, err := lockcoretest.StartRedis()
		if err != nil {
			panic(err)
		}
		defer r.Close()
		servers = append(servers, r.Client())
	}
	c, err := lockcore.NewQuorum(servers, lockcore.QuorumConfig{MaxTTL: time.Second})
	if err != nil {
		panic(err)
	}
	defer c.Close(context.Background())
	err = c.Do(context.Background(), "orders", lockcore.LeaseConfig{TTL: time.Second}, func(ctx context.Context) error {
		seen, err := c.Inspect(ctx, lockcore.FromContext(ctx).Name())
		fmt.Println("holders:", len(seen.Holders), "servers:", len(seen.Servers))
		return err
	})
	fmt.Println(err)
	// Output:
	// holders: 1 servers: 3
	// <nil>
}

// A call that failed because Redis is away may be repeated. After a wrong password, an operator has to act first.
func ExampleIsTemporary() {
	c, err := lockcore.New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), lockcore.Config{})
	if err != nil {
		panic(err)
	}
	defer c.Close(context.Background())
	m, err := c.Mutex("orders", lockcore.LeaseConfig{TTL: time.Second})
	if err != nil {
		panic(err)
	}
	_, err = m.TryLock(context.Background())
	fmt.Println(lockcore.IsTemporary(err))
	// Output: true
}

// At most two replicas use a licence at a time. Each one writes to the file of its slot, which the token fences.
func ExampleSemaphore() {
	c, done := exampleClient()
	defer done()
	ctx := context.Background()

	licences, err := c.Semaphore("licences", 2, lockcore.LeaseConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		lease, err := licences.Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _ = lease.Unlock(ctx) }()
		fmt.Println("slot", lease.Slot())
	}
	_, err = licences.TryAcquire(ctx)
	fmt.Println(lockcore.IsTemporary(err), err != nil)

	fmt.Println(licences.Resize(ctx, 3)) // for all replicas
	lease, err := licences.TryAcquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("slot", lease.Slot())
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// slot 0
	// slot 1
	// false true
	// <nil>
	// slot 2
	// <nil>
}
