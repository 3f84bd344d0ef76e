package lockcore

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// ErrNoQuorum means that too few servers of a quorum could do what was requested: they did not
// answer, have lost their data, or have another list of servers. A lock that only some of them
// granted is released. The error is temporary, see IsTemporary, unless so many servers need an
// operator.
var ErrNoQuorum = wire.ErrNoQuorum

// QuorumConfig configures a Client on several servers. All Clients of the same servers must
// have the same List and, except during a change, the same MaxTTL.
type QuorumConfig struct {
	Config

	// List is the number of the list of servers. Increase it when the list changes, by less than half
	// of the servers at a time. When the first Client with a later list acquires a lock, Clients with an earlier list
	// lose their leases and acquire no more: see docs/OPERATIONS.md. Under one number, a Client uses only
	// the servers of the first list, and only a Client that has seen a server as a member lets it in after a loss of
	// data. From 1. Default 1.
	List int

	// MaxTTL is the longest TTL of any lease on these servers. A server that restarts or loses
	// its data grants nothing for MaxTTL, because lost leases may be valid until
	// then. The same holds for all servers at their first start. MaxTTL can be increased. Whole
	// milliseconds from 100 ms to 24 h. Default 15 s.
	MaxTTL time.Duration
}

// NewQuorum returns a Client whose locks are held on a majority of the servers, which are 3, 5, 7 or 9 *redis.Client.
// A minority of them may crash, restart, hang or lose its data without an effect on leases.
//
// Options, connections and errors are as for New. The servers must not replicate each other. A server that is given
// twice is noticed when it answers twice. From then on, nothing is acquired until each client leads to a server
// of its own.
//
// Mutex and package election work as on one server, with these differences:
//
//   - There is no queue. Waiters try again when a message says that the lock is free, and after
//     random pauses of up to half a second. The order of waiters is not kept.
//   - A lease counts when a majority has granted it and stored its fencing token. This takes two
//     round trips. A renewal counts when a majority has answered.
//   - The first lease is granted MaxTTL after the first start of the servers. All must be up for it.
//
// Jobs with a ledger (singleton.Runner, Job and Once), ReentrantMutex, RWMutex, Semaphore, MinReplicas,
// ForceRelease and lists of names are refused with a *noonlock.ConfigError.
//
// # Guarantees
//
// These hold while, within one MaxTTL, fewer servers than a majority are away, lose data or have
// their clocks stepped, all counted together. A Client that has had a grant of a server before its
// clock was stepped forward notices that, if the step is greater than 50 ms plus a thousandth of the time
// since that grant: one minute after 16.7 hours. It logs an error, and the server's grants do not count for
// MaxTTL. A smaller step may be a clock that runs at another rate. A Client that has just started
// notices no step.
//
//   - At most one lease of a Mutex is valid at a time.
//   - Each lease has a greater token than all earlier ones, whatever minority is down, slow, or
//     has lost its data.
//   - A server that has lost its data, or has an old copy of it, is noticed. It grants nothing
//     for MaxTTL.
//
// # Not guaranteed
//
// If a majority restarts with old data at once, leases are still exclusive, as all of these servers wait
// for MaxTTL. Tokens then grow only if no server's clock is behind the clocks of the others. This is
// logged as an error. If a majority loses all data, and others do not, nothing is granted before an
// operator has acted: see docs/OPERATIONS.md. Clients with different servers under one number that share
// none with data have separate quorums, and may hold the same lock. The loss of single keys, by
// eviction or deletion, is not noticed: use maxmemory-policy noeviction. Work that ignores its context does not stop.
//
// Sources: "Distributed Locks with Redis" in the manual of Redis (the Redlock algorithm), "How to
// do distributed locking" by Kleppmann (2016), who asks for tokens, and "Is Redlock safe?", the
// answer by Sanfilippo (2016), who asks for the delay after a restart.
func NewQuorum(servers []redis.UniversalClient, cfg QuorumConfig) (*Client, error) {
	return opened(lock.NewQuorum(servers, lock.Config(cfg.Config), cfg.List, cfg.MaxTTL))
}
