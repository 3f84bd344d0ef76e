// Package lockcore holds leases on named locks in Redis: the ground on which
// elections and scheduled jobs stand, and a distributed mutex in its own right.
//
//	c, err := lockcore.New(rdb, lockcore.Config{})
//	m, err := c.Mutex("orders", lockcore.LeaseConfig{TTL: 10 * time.Second})
//	lease, err := m.Lock(ctx) // waits in line
//	defer lease.Unlock(ctx)
//	work(lease.Context(), lease.Token())
//
// A Mutex is held by one lease. A ReentrantMutex is held by one owner, which has as
// many leases as it asked for. An RWMutex is held by any number of owners that read or
// by one that writes. An owner is a text that the caller gives, as Go has no identity
// of a thread. All kinds yield a Lease, stand in one line, and share the key of a name:
// while one kind is held the others are refused with ErrWrongKind.
//
// # What is guaranteed
//
// While the server keeps its data and its clock is not set, at most one lease of
// a Mutex is valid at a time, the leases of one owner only of a ReentrantMutex, and of
// an RWMutex, while a lease writes, those of its owner only. The lease's context is done before the server may
// give the name to another: after a hung server, a paused process, a lost
// answer, a failed renewal. Every lease has a fencing token greater than that of
// every earlier lease of the name; an owner that enters while it holds keeps its token,
// and has a new one when it comes to write while it reads. Waiters are served in order
// of arrival, by push: no reader passes a writer that waits, and readers that stand
// together are served together. An owner that holds is let in past the line, as it
// would wait for itself. Every request may be lost, late or repeated without harm: the
// entries of an owner are counted by their ids, and each ends by itself.
//
// # What is not guaranteed
//
// That work which does not look at its context has stopped: a resource that must
// not be touched by two at once has to refuse a fencing token smaller than one
// it has seen. That a lock survives the loss of the server's data, as in a
// failover to a replica that lagged, an eviction or a restart without
// persistence: two may then hold it until the first one's next renewal, which
// says so; the second one's token is greater. That tokens grow if the server
// loses its data and its clock is set back before the last seeding of the
// counter. That a lock is free in time if the server's clock is set back. That a
// waiter whose process cannot be reached keeps its turn: it is passed over. That one who
// waits is served while an owner that holds never lets go, entering anew before it
// leaves. That callers which give the same owner are kept apart: each may enter while
// another of them writes. That tokens tell readers apart in time: an owner that reads on keeps its
// token while others that came later are gone; they order what is written.
//
// # The arithmetic
//
//	validity      ends at t0 + TTL - margin; t0 is read before the request that
//	              granted or renewed it was sent, so it is never after the end of
//	              the server's TTL, whatever the network did in between
//	margin        1 % of TTL + 2 ms, for clocks that run at different rates
//	renewal       every TTL/3, again TTL/12 after a failure: a holder survives an
//	              outage of up to 2/3 TTL less the margin
//	a dead holder is succeeded within TTL (its last renewal's) and one round trip;
//	              a dead reader is in a writer's way for its own TTL, whatever others'
//	              are, and a dead writer in a reader's, although its owner reads on
//	a dead waiter whose connection is gone costs nothing; a frozen process costs
//	              the line a second, in which a grant stands unconfirmed, and then
//	              all its waiters are passed over
//	an entry      of a ReentrantMutex or RWMutex costs the same to acquire, renew and
//	              release however many there are, of its owner or of others
//
// On Linux the clock is CLOCK_BOOTTIME, which goes on while the machine is
// suspended. Elsewhere it may stand still then, and a lease is believed too long
// after a suspend, unless Config.Clock is a better one.
//
// # What happens when
//
//	the process is paused     Context().Err() and Remaining look at the clock and
//	                          refuse at first use; channels follow when timers run
//	a reply is lost           the request is sent again; it is the same attempt
//	an acquire is given up    if a request of it is still under way it leaves a
//	                          tombstone, so that this cannot take the lock
//	renewals fail             the context is done with ErrLeaseExpired, in time
//	the lock was taken away   ErrLeaseLost at the next renewal
//	the server restarts empty as above; waiters join again with their old places
//	a count is in doubt       there is none: each entry is one attempt's, so that a lost
//	                          request or answer adds and takes none twice
//	an owner that reads, and  ErrUpgrade if others read, too: two that wait like that
//	wants to write            would wait for each other; else it is let in
//	a downgrade is unanswered it is asked again; ErrUnknown: write no more
//	another kind is asked for ErrWrongKind, also to those in line, at their next look
//	a writer in line dies     the next reader that asks is let in if its connection is
//	                          gone, else after three looks of the writer
//	a message is lost         everybody looks about once per TTL, at least 1.1 s
//	the subscription breaks   everybody looks when it is back
//	scripts are flushed       they are sent again with their source
//	the server is busy,       asked again; nothing was applied
//	loading or read-only
//	the server refuses (OOM,  the error is returned, and nothing is half done; who
//	ACL, MISCONF, NOREPLICAS) stands in line or releases tries again
//
// # Rights
//
// A Mutex needs of an ACL no more than
//
//	~noonlock:* resetchannels &noonlock:ch:* -@all +evalsha +eval +subscribe
//	+ping +publish +exists +get +set +del +pexpire +pttl +time +zadd +zrange
//	+zrem +zscore +hset +hget +hdel
//
// and ReentrantMutex and RWMutex of
//
//	~noonlock:* resetchannels &noonlock:ch:* -@all +evalsha +eval +subscribe
//	+ping +publish +exists +set +del +pexpire +pexpireat +pttl +time +zadd
//	+zrange +zrem +zscore +zmscore +zcard +zcount +zrangebyscore +zrevrangebyscore
//	+hset +hget +hdel
//
// Without publish or subscribe waiters are slow, not wrong. Inspect needs
//
//	~noonlock:* -@all +evalsha +eval +time +type +pttl +get +zrange +zscore
//	+hget
//
// and ForceRelease besides
//
//	resetchannels &noonlock:ch:* +del +zmscore +zadd +zrem +zrangebyscore
//	+zrevrangebyscore +pexpireat +publish
//
// Where redis.Options ask for it, setting up a connection needs +select (DB) and
// +client|setname (ClientName), too.
//
// The design follows the lease of Gray and Cheriton (1989), fencing tokens as
// Kleppmann describes them (2016), and single-instance locking with SET NX PX.
package lockcore
