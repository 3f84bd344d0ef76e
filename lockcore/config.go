package lockcore

import (
	"cmp"
	"math"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// Config configures a Client. Its zero value has working defaults.
type Config struct {
	// Prefix is the first part of every key and channel. Clients with different prefixes
	// do not see each other's locks. 1 to 200 bytes of UTF-8 without control characters,
	// spaces and braces. Default "noonlock".
	Prefix string

	// Identity names the Client's leases in HeldError, Inspect and logs. It need not be
	// unique, because leases are distinguished by a secret random value. 1 to 200 bytes of
	// UTF-8 without control characters. Default: the host name and a random suffix.
	Identity string

	// Logger receives events that an operator should see, such as lost leases. Its zero value
	// discards them, so set it in every program.
	// Successful acquisitions and renewals are not logged. A separate goroutine calls the
	// Logger, so a Logger that blocks delays no lock. Up to 10,000 lines are queued, and
	// further lines are dropped and counted. Close waits up to 1 s for the queue.
	Logger logr.Logger

	// Registerer registers the metrics of docs/METRICS.md. Clients with the same Registerer
	// share them. Default: no metrics.
	Registerer prometheus.Registerer

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
	// a *DelayError. Elections, claims of jobs, Daemons and Onces wait, too.
	//
	// Set it to the longest TTL that any program uses on the server, and to the same value in all
	// Clients. The Client refuses leases with a longer TTL. Each restart and each failover counts as a loss, because
	// no client can know that nothing was lost: see docs/SAFETY.md. So does a server without a
	// record of its history, which includes the first use of a server. The record is the key
	// <Prefix>:history. Clients that start after the loss read it, so they wait, too.
	//
	// Each new connection for requests needs one more round trip. The server must report its run
	// id and replication id (INFO). Whole milliseconds from 100 ms to 24 h. Default 0: no delay.
	LockDelay time.Duration

	// Clock returns the time elapsed since any fixed point, including the time for which
	// the machine was suspended. Leases use Go's monotonic clock plus the time that Clock
	// has gained on it. So Clock can end leases earlier, but not later.
	//
	// Clock must be safe for concurrent use, and must neither block nor panic: leases do not end
	// in time while it blocks.
	//
	// Default: CLOCK_BOOTTIME on Linux, none elsewhere. With none, leases look valid for too
	// long after a suspend. In a testing/synctest bubble leases use the bubble's clock, and
	// no Clock is needed.
	Clock func() time.Duration
}

// LeaseConfig configures the leases of a lock. Its zero value is a TTL of 10 s and renewal
// for as long as the lease is held.
type LeaseConfig struct {
	// TTL is the time for which the server keeps the lock after the last renewal. Waiters
	// wait that long for a holder that died. A short TTL needs more renewals and tolerates
	// shorter outages. Whole milliseconds from 100 ms to 24 h. Default 10 s.
	TTL time.Duration

	// RenewInterval is the time between renewals. From 10 ms to TTL/2. Default TTL/3.
	RenewInterval time.Duration

	// RetryInterval is the pause before a failed renewal is retried. It applies to a
	// renewal that the server refused or for which there was no connection. The pause is
	// never longer than half of the remaining validity. After that half, an unanswered
	// renewal is retried, too. From 1 ms to TTL/2. Default RenewInterval/16.
	RetryInterval time.Duration

	// ValidFor is the time for which the lease is valid after the last renewal was sent. A
	// smaller value leaves the work more time to stop before the TTL expires. It must be
	// longer than RenewInterval, unless NoRenewal is set. Default and maximum: TTL less a
	// margin for clocks that run at different rates (1 % of TTL + 2 ms). From 256 leases on, the
	// leases of a Client end earlier: 2 µs for each lease that it holds, at most 20 ms. Otherwise
	// the last of many contexts that end at one instant would end too late.
	ValidFor time.Duration

	// MaxHold is the time after the acquisition at which renewals stop, so that stuck work does
	// not hold the lock for ever. The lease then expires within one TTL, with ErrMaxHold. It
	// must be 0 if NoRenewal is set. Default 0: no limit.
	MaxHold time.Duration

	// NoRenewal disables renewals: the lease ends ValidFor after its acquisition.
	NoRenewal bool

	// MinReplicas is the number of replicas that must acknowledge each grant and each renewal
	// before it counts (WAIT). So a lease survives the loss of the primary if one of these
	// replicas is promoted: see docs/SAFETY.md. A grant that too few replicas acknowledge in
	// time is given back, with ErrNotReplicated. A renewal that too few acknowledge does not
	// extend the lease, and is retried until the lease ends. In a cluster, the slot of a name may
	// move to another primary. If the replicas there do not acknowledge a renewal, the lease ends
	// within a third of TTL, at most 3 s. A request waits for the replicas for at most a sixth
	// of TTL: from 25 ms to 1.5 s. Default 0: the primary alone decides.
	MinReplicas int

	// Identity names the leases, as Config.Identity does. Default: that of the Client.
	Identity string
}

const (
	minTTL = 100 * time.Millisecond
	maxTTL = 24 * time.Hour

	defaultPrefix = "noonlock"
	defaultTTL    = 10 * time.Second

	defaultTokenRetention = 2 * time.Hour

	// tombTTL is longer than a request can be in flight.
	tombTTL = 5 * time.Minute
)

// leaseTerms is a LeaseConfig with its defaults filled in.
type leaseTerms struct {
	ttl      time.Duration
	times    lease.Times
	identity string
	replicas int

	// Arguments of requests, in ms: ttl, and the TTL of the token counter after a grant.
	ttlArg, keepArg any
}

// Validate returns a *ConfigError for the first invalid field, or nil.
func (cfg LeaseConfig) Validate() error {
	_, err := cfg.terms("default") // New has checked that of the Client
	return err
}

func (cfg LeaseConfig) terms(identity string) (*leaseTerms, error) {
	t := &leaseTerms{
		ttl:      cmp.Or(cfg.TTL, defaultTTL),
		identity: cmp.Or(cfg.Identity, identity),
		replicas: cfg.MinReplicas,
	}
	if t.ttl < minTTL || t.ttl > maxTTL || t.ttl%time.Millisecond != 0 {
		return nil, refuse("LeaseConfig.TTL", "0 (10s) or whole milliseconds from 100ms to 24h", cfg.TTL)
	}
	renew := cmp.Or(cfg.RenewInterval, t.ttl/3)
	if renew < 10*time.Millisecond || renew > t.ttl/2 {
		return nil, refuse("LeaseConfig.RenewInterval", "0 (a third of TTL) or from 10ms to half of TTL", cfg.RenewInterval)
	}
	retry := cmp.Or(cfg.RetryInterval, max(renew/16, time.Millisecond))
	if retry < time.Millisecond || retry > t.ttl/2 {
		return nil, refuse("LeaseConfig.RetryInterval", "0 (a sixteenth of RenewInterval) or from 1ms to half of TTL", cfg.RetryInterval)
	}
	longest := t.ttl - lease.Margin(t.ttl)
	valid := cmp.Or(cfg.ValidFor, longest)
	if valid > longest || valid <= 0 {
		return nil, refuse("LeaseConfig.ValidFor", "0 or at most TTL less the margin ("+longest.String()+")", cfg.ValidFor)
	}
	if !cfg.NoRenewal && valid <= renew {
		return nil, refuse("LeaseConfig.ValidFor", "longer than RenewInterval ("+renew.String()+")", cfg.ValidFor)
	}
	if cfg.MaxHold < 0 {
		return nil, refuse("LeaseConfig.MaxHold", "0 or positive", cfg.MaxHold)
	}
	if cfg.MaxHold > 0 && cfg.NoRenewal {
		return nil, refuse("LeaseConfig.MaxHold", "0 if NoRenewal is set", cfg.MaxHold)
	}
	if cfg.MinReplicas < 0 {
		return nil, refuse("LeaseConfig.MinReplicas", "0 or positive", cfg.MinReplicas)
	}
	if err := checkIdentity("LeaseConfig.Identity", t.identity); err != nil {
		return nil, err
	}
	t.ttlArg = millis(t.ttl)
	t.times = lease.Times{Valid: valid, Renew: renew, Retry: retry, Try: t.timeout(), MaxHold: cfg.MaxHold}
	if cfg.NoRenewal {
		t.times.Renew = 0
	}
	if t.replicas > 0 {
		t.times.Unconfirmed = t.timeout()
	}
	return t, nil
}

// terms checks the configuration of a lease.
func (c *Client) terms(cfg LeaseConfig) (*leaseTerms, error) {
	t, err := cfg.terms(c.identity)
	if err == nil && c.lockDelay > 0 && t.ttl > c.lockDelay {
		err = refuse("LeaseConfig.TTL", "at most Config.LockDelay ("+c.lockDelay.String()+")", t.ttl)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// timeout returns how long one request may stay unanswered before it is retried. It is
// short enough for several tries within the TTL.
func (t *leaseTerms) timeout() time.Duration {
	return min(max(t.ttl/3, 50*time.Millisecond), 3*time.Second)
}

// replicated returns a request that counts only if MinReplicas replicas have acknowledged it.
func (t *leaseTerms) replicated(r wire.Request) wire.Request {
	return r.Replicated(t.replicas, t.timeout()/2)
}

// refresh returns the interval at which a waiter checks without a message. The queue drops
// a waiter that has not checked for three intervals (lapse_of in part_queue.lua).
func (t *leaseTerms) refresh() time.Duration { return max(t.ttl, time.Second) * 11 / 10 }

func checkName(field, name string) error {
	if rule := input.Fault(name, 200, true); rule != "" {
		return &ConfigError{Field: field, Value: input.Quote(name), Rule: rule}
	}
	return nil
}

// checkUserName checks the name of a lock. Names that jobs and elections use are refused,
// because a user's lock could otherwise block a job or an election.
func checkUserName(name string) error {
	if engine.IsReserved(name) {
		return &ConfigError{Field: "name", Value: input.Quote(name), Rule: "a name without the prefixes " + engine.JobNames + " and " + engine.ElectionNames + ", which jobs and elections use"}
	}
	return checkName("name", name)
}

func checkIdentity(field, identity string) error {
	if rule := input.Fault(identity, 200, false); rule != "" {
		return &ConfigError{Field: field, Value: input.Quote(identity), Rule: rule}
	}
	return nil
}

func millis(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}
