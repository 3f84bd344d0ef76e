package lockcore

import (
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/logqueue"
)

// Discard is a Logger that drops all lines, also errors.
var Discard = discard()

func discard() logr.Logger { return logqueue.Discard }

// Config configures a Client. Its zero value has working defaults.
type Config struct {
	// Prefix is the first part of every key and channel. Clients with different prefixes
	// do not see each other's locks. 1 to 200 bytes of UTF-8 without control characters,
	// spaces and braces. Default "noonlock".
	Prefix string

	// Identity names this replica: in HeldError, Inspect, records of elections, ledgers of jobs, and logs. It need not be
	// unique, because leases are distinguished by a secret random value. 1 to 200 bytes of
	// UTF-8 without control characters. Default: the host name and a random suffix.
	Identity string

	// Logger receives events for operators, for example lost leases, of the Client and of all electors,
	// Runners and Onces that use it. With its zero value, like logr.Discard(), errors go to the
	// default logger of package slog, and other lines are dropped. Discard drops all lines.
	// Successful acquisitions and renewals are not logged. A separate goroutine calls the
	// Logger, so a Logger that blocks delays no lock. Up to 10,000 lines are queued, and
	// further lines are dropped and counted. Close waits up to 1 s for the queue.
	Logger logr.Logger

	// Registerer registers the metrics of docs/METRICS.md, also of all users of the Client. Clients with the same
	// Registerer share them. Default: no metrics.
	Registerer prometheus.Registerer

	// SumMetrics makes one series of all jobs and of all elections: docs/METRICS.md has sizes, and the meaning
	// of gauges. It is the same in all Clients with the same Registerer. Default: a series for each name.
	SumMetrics bool

	// TokenRetention is the time for which the server keeps the last fencing token of a
	// lock after it was granted. It costs about 135 bytes for each name that was used
	// within that time. While the token is kept, the next token is greater, whatever the
	// server's clock says. After that only the clock makes it greater: a token can repeat
	// only if the clock is set back by more than TokenRetention. Jobs and elections keep
	// their tokens for a week. At least 1 min. Default 2 h.
	TokenRetention time.Duration

	// LockDelay is the time for which nothing is granted after the server may have lost data.
	// Leases that were lost with the data end meanwhile, so that two leases are never valid at the
	// same time. Leases that the server still has are renewed. Lock waits, and TryLock returns
	// ErrDelayed. Elections, claims of jobs and Onces wait, too.
	//
	// Set LockDelay to the longest TTL that any program uses on the server, and to the same value in all
	// Clients. The Client refuses leases with a longer TTL. Each restart and each failover counts as a loss, because
	// no client can know that nothing was lost: see docs/SAFETY.md. A server without a
	// record of its history counts as a loss, too, also at the first use of a server. The record is the key
	// <Prefix>:history. Clients that start after the loss read the record, so they wait, too.
	//
	// Each new connection for requests needs one more round trip. The server must report its run
	// id and replication id (INFO). Whole milliseconds from 100 ms to 24 h. Default 0: no delay.
	LockDelay time.Duration

	// MinReplicas is the number of replicas that must acknowledge each grant, each renewal and each
	// completion of a run before it counts (WAIT). So a lease survives the loss of the primary if one of these
	// replicas is promoted: see docs/SAFETY.md. A grant that too few replicas acknowledge in
	// time is given back, with ErrNotReplicated. A renewal that too few acknowledge does not
	// extend the lease, and is retried until the lease ends. A request waits for the replicas for at most a sixth
	// of TTL, but at least 25 ms and at most 1.5 s. Other
	// requests of the Client may wait behind it. Default 0: the primary alone decides.
	MinReplicas int
}

// LeaseConfig configures the leases of a lock. Its zero value is a TTL of 10 s and renewal
// for as long as the lease is held.
type LeaseConfig struct {
	// TTL is the time for which the server keeps the lock after the last renewal. Waiters
	// wait that long for a holder that died. A short TTL needs more renewals and tolerates
	// shorter outages. Whole milliseconds from 100 ms to 24 h. Default 10 s.
	TTL time.Duration

	// RenewInterval is the time between renewals. From 10 ms to TTL/2. Default TTL/3. A renewal that
	// failed is retried after a sixteenth of RenewInterval, and an unanswered renewal after at most half of
	// the remaining validity.
	RenewInterval time.Duration

	// ValidFor is the time for which the lease is valid after the last renewal was sent. A
	// smaller value leaves the work more time to stop before the TTL expires. It must be
	// longer than RenewInterval, unless NoRenewal is set. Default and maximum: TTL less a
	// margin for clocks that run at different rates (1 % of TTL + 2 ms). From 256 leases on, the
	// leases of a Client end earlier: 2 µs for each lease that it holds, at most 20 ms. Otherwise
	// the last of many contexts that end at one instant would end too late.
	ValidFor time.Duration

	// NoRenewal disables renewals: the lease ends ValidFor after its acquisition.
	NoRenewal bool

	// Wait is the longest time for which Lock waits for the lock. It also limits the wait of Client.Do, where the
	// deadline of ctx would end the work, too. After it, the error is as at the end of ctx. Default 0: until ctx ends.
	Wait time.Duration
}
