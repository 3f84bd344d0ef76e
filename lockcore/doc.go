// Package lockcore provides distributed locks on Redis. A held lock is a [Lease]: it has
// a context that ends in time and a fencing token that a database can check.
//
//	c, err := lockcore.New(rdb, lockcore.Config{})
//	m, err := c.Mutex("orders", lockcore.LeaseConfig{TTL: 10 * time.Second})
//	lease, err := m.Lock(ctx) // waits in the queue
//	defer lease.Unlock(ctx)
//	work(lease.Context(), lease.Token())
//
// There are four kinds of lock:
//
//	Mutex           one lease at a time
//	ReentrantMutex  one owner at a time, with any number of leases
//	RWMutex         any number of owners that read, or one owner that writes
//	Semaphore       up to n leases at a time, each in a slot of its own; n is the number stored with the name
//
// An owner is a text that the caller chooses, because Go has no thread identity. A ReentrantMutex is the write
// side of an RWMutex; a Mutex or a Semaphore cannot use a name that they use. A name has the kind of its holder, or
// while it is free the kind of the first live waiter. Calls of another kind fail with [ErrWrongKind], waiters at their
// next check.
//
// # Guarantees
//
// These hold while the server keeps its data and nobody changes the clock of its machine.
//
//   - At most one lease of a Mutex is valid at a time. All valid leases of a ReentrantMutex
//     have one owner. While a lease of an RWMutex may write, all valid leases have its owner.
//     A slot of a Semaphore has at most one valid lease, and the stored size bounds the grants.
//   - The context of a lease is done before the server may grant the lock to another
//     client: after a hung server, a paused process, a lost reply, or a failed renewal.
//   - Each lease has a fencing token greater than the tokens of all earlier leases of the
//     name. An owner that acquires again while it holds the lock in the same Client keeps its token.
//     It gets a new token when a reader becomes a writer, and when it has meanwhile acquired the lock
//     in another Client.
//   - Waiters are served in order of arrival and are notified by messages. A reader does
//     not pass a waiting writer. Adjacent readers are granted together. An owner that holds
//     the lock passes the queue, because it would otherwise wait for itself.
//   - A request may be lost, delayed or repeated without harm. Each acquire has its own
//     id, so a repeated acquire counts once.
//
// NewQuorum holds a Mutex or an election on a majority of several servers. Its documentation lists the
// guarantees, which differ from these.
//
// # Not guaranteed
//
//   - Work that ignores its context does not stop. If two writers at a time can do harm, the
//     resource must refuse a token smaller than the greatest that it has seen.
//   - A lock does not survive the loss of the server's data: a failover to a replica that
//     lagged, an eviction, a restart without persistence. Two leases may then be valid until
//     the first one's next renewal, which reports the loss. The second lease has the
//     greater token. Config.LockDelay prevents this for restarts and failovers.
//   - Tokens may repeat if the server loses its data and its clock is also set back.
//   - If the server's clock is set back, keys live longer, so locks are free later.
//   - A waiter whose process does not answer loses its turn.
//   - Waiters can starve if an owner keeps acquiring again before it releases.
//   - Two callers with the same owner do not exclude each other: one may acquire while the
//     other writes.
//   - Tokens do not order reads: an owner keeps its token while it has a read lease in the same Client, although
//     later readers have greater tokens.
//
// # Timing
//
//	validity       A lease is valid until t0 + TTL - margin. t0 is the time just before the
//	               request that granted or renewed the lease was sent. So the lease ends
//	               before the server's TTL, however slow the network was.
//	round trip     A request times out after a third of the TTL, at most 3 s. In a cluster, a
//	               round trip must be shorter than 1.5 s, with Sentinels shorter than 1 s, and
//	               with NewQuorum shorter than 1.5 s and a fifth of the TTL.
//	margin         1 % of the TTL + 2 ms, for clocks that run at different rates.
//	renewal        Every TTL/3. A refused renewal is retried after TTL/48. An unanswered
//	               renewal is retried before half of the remaining validity has passed. A
//	               lease with a TTL of at least 200 ms survives an outage of up to 0.62 TTL
//	               at any moment: 6.2 s of 10 s. The old connections need not work after
//	               the outage, if new ones can be made. A Client with 256 leases or more
//	               ends them up to 20 ms earlier (LeaseConfig.ValidFor). With a TTL below
//	               2 s, the outage that they survive is shorter, too.
//	dead holder    The next waiter gets the lock one TTL and one round trip after the holder's
//	               last renewal, or a second later if other waiters of that process are ahead.
//	               Only the TTL of the dead holder's lease counts, for readers and writers.
//	dead waiter    A dead or frozen process delays the queue by one second, once: it does not
//	               confirm a grant, and then all its waiters are skipped until it sends a
//	               request. Up to 32 more of these processes cost 0.25 s together.
//	many leases    Acquire, renew and release of a ReentrantMutex or RWMutex cost the same
//	               however many leases exist.
//
// On Linux the clock is CLOCK_BOOTTIME, which includes the time a machine is suspended.
// On other systems the clock may stop during a suspend, and a lease then looks valid for
// too long.
//
// # Bounds
//
// A try of a request has one timeout, which includes dialing: a third of the TTL, at least 50 ms and at most
// 3 s, and 2 s for calls that depend on no TTL. If the server does not answer, a call returns an error within
// the time of this table, which includes its tries and the pauses between them. It returns earlier if ctx ends.
//
//	2/3 TTL, at most 6 s      Mutex.TryLock, ReentrantMutex.TryLock, RWMutex.TryLock, RWMutex.TryRLock,
//	                          Semaphore.TryAcquire, Semaphore.Resize
//	TTL                       Lease.Unlock, RWMutex.Downgrade
//	6.7 s                     Client.Inspect, Locks, Client.ForcedReleases
//	13.4 s                    Client.ForceRelease
//	until ctx ends            Mutex.Lock, ReentrantMutex.Lock, RWMutex.Lock, RWMutex.RLock, Semaphore.Acquire,
//	                          Client.Close
//	until ctx ends + TTL, at most 10 s  Client.Do
//	0 s                       Client.Mutex, Client.ReentrantMutex, Client.RWMutex, Client.Semaphore, Lease.Bind,
//	                          Lease.Check, FromContext, WithOperator
//
// If ctx is done when Unlock is called, it waits for one TTL, at most 10 s. On a quorum, TryLock
// sends one more request, with the time of a try, if a majority has granted the lock.
//
// # Failures
//
//	the process is paused      Context().Err() and Remaining read the clock and report the end
//	                           at their first use. Done channels close when timers run.
//	a reply is lost            The request is sent again under the same id.
//	an acquire is abandoned    If its request may still arrive, a tombstone makes that request
//	                           fail.
//	renewals fail              The context is done with ErrLeaseExpired before the TTL ends.
//	the lock was removed       The next renewal ends the context with ErrLeaseLost, or with
//	                           ErrForced after ForceRelease.
//	the server restarts empty  As above. Waiters queue again in their old order.
//	an owner that reads wants  ErrUpgrade if others read too, because two of these owners would
//	to write                   wait for each other. Otherwise it is granted.
//	a downgrade gets no reply  It is sent again. If the error is ErrUnknown, do not write.
//	a key has another type     ErrWrongKind. A renewal uses only the key of the lock: ErrLeaseLost.
//	a waiting writer dies      The next reader passes it after the writer has missed three checks,
//	                           or has not confirmed a grant.
//	a message is lost          Each waiter checks once per 1.1 TTL, at least 1.1 s apart.
//	the subscription breaks    All waiters check when it is back.
//	a live process is taken    Its next request ends that. The first of its waiters that finds its
//	for dead                   place lost makes the others check. All join again at their old places.
//	scripts are flushed        They are sent again with their source.
//	the server is busy,        The request is sent again. Nothing was applied.
//	loading or read-only
//	the server restarts or     With LockDelay, nothing is granted for that time, and leases that
//	fails over                 the server has are renewed.
//	replicas are slow or gone  With MinReplicas, a grant is given back (ErrNotReplicated), and
//	                           a renewal does not extend the lease.
//	the server lacks memory,   TryLock returns the error. Waits and releases are retried.
//	disk space or replicas     No request is applied in part.
//	an ACL right is missing    The call returns the error. IsTemporary is false for it.
//
// # Rights
//
// docs/SECURITY.md lists the rights (ACL) that each type and method needs. Without publish or subscribe, waiters are
// slow but correct.
//
// Sources: leases by Gray and Cheriton (1989), fencing tokens as described by Kleppmann
// (2016), and single-instance locking with SET NX PX.
package lockcore
