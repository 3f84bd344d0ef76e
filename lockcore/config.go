package lockcore

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
)

// Config is what a Client is made of. Its zero value is a working default.
type Config struct {
	// Prefix of every key and channel. Default "noonlock". Clients of different
	// prefixes do not see each other's locks.
	Prefix string

	// Identity is shown to whoever finds a lock held, and in logs. It need not
	// be unique: leases are told apart by a secret nonce. Default: the host
	// name and a random suffix.
	Identity string

	// Logger gets what the operator should know; its zero value discards.
	// Nothing is logged per acquisition or renewal below V(4). A goroutine of its own
	// calls it, so that one that blocks delays nothing: up to 10,000 lines are queued,
	// further ones are dropped and counted. Close waits a second for the queue.
	Logger logr.Logger

	// Registerer gets the metrics of docs/METRICS.md. Clients that are given the
	// same one share them. Default: none.
	Registerer prometheus.Registerer

	// TokenRetention is how long the server remembers the last fencing token of a lock
	// after the last lease of it. It costs about 135 bytes for each name that was used
	// within that time. While the token is remembered, the next one is greater, however
	// the server's clock is set. After that the clock alone makes it greater: a token
	// can be repeated only if the clock is set back by more than TokenRetention.
	// Jobs and elections keep theirs for a week. At least a minute. Default 2 h.
	TokenRetention time.Duration

	// Clock is elapsed time since any fixed point, and should go on while the
	// machine is suspended. Leases go by Go's monotonic clock and by what Clock has
	// gained on it: a Clock ends leases earlier, never later, and one that blocks or
	// panics is not waited for. Default: CLOCK_BOOTTIME on Linux, none elsewhere,
	// where leases are believed too long after a suspend. In a testing/synctest bubble
	// leases go by the bubble's clock, and no Clock is needed.
	Clock func() time.Duration
}

// LeaseConfig is how the leases of a lock behave. The zero value is a lock of
// ten seconds that is renewed for as long as it is held.
type LeaseConfig struct {
	// TTL is how long the server keeps the lock after the last renewal: how long
	// the others wait for a holder that died. 100 ms to 24 h, whole
	// milliseconds. Default 10 s.
	TTL time.Duration

	// RenewInterval is the time between renewals. Default TTL/3; at most TTL/2.
	RenewInterval time.Duration

	// RetryInterval is the time from a renewal that was refused, or for which no
	// connection was had, to the next try, unless half of what was left of the lease
	// is less. One that is not answered is tried again when that half is over. Default RenewInterval/16.
	RetryInterval time.Duration

	// ValidFor ends the lease on this side earlier after the last renewal than
	// the TTL demands. Default and upper bound: TTL less the margin for clocks
	// that do not run alike (1 % of TTL + 2 ms).
	ValidFor time.Duration

	// MaxHold ends renewing this long after the acquisition, so that stuck work
	// does not hold the lock for ever: the lease then expires within one TTL, with
	// ErrMaxHold. 0: no cap.
	MaxHold time.Duration

	// NoRenewal makes a plain lock that ends after ValidFor.
	NoRenewal bool

	// Identity is shown to whoever finds the lock held. Default: the Client's.
	Identity string
}

const (
	minTTL = 100 * time.Millisecond
	maxTTL = 24 * time.Hour

	defaultPrefix = "noonlock"
	defaultTTL    = 10 * time.Second

	defaultTokenRetention = 2 * time.Hour
	runnersTokenRetention = 7 * 24 * time.Hour

	// tombTTL outlives any request that is still under way.
	tombTTL = 5 * time.Minute
)

// leaseTerms is a LeaseConfig with its defaults filled in.
type leaseTerms struct {
	ttl        time.Duration
	times      lease.Times
	identity   string
	keepTokens time.Duration // how long the last token outlives the last lease
}

func (cfg LeaseConfig) terms(identity string) (*leaseTerms, error) {
	t := &leaseTerms{
		ttl:      cmp.Or(cfg.TTL, defaultTTL),
		identity: cmp.Or(cfg.Identity, identity),
	}
	if t.ttl < minTTL || t.ttl > maxTTL || t.ttl%time.Millisecond != 0 {
		return nil, refuse("LeaseConfig.TTL", "0 (10s) or whole milliseconds from 100ms to 24h", "%s", cfg.TTL)
	}
	renew := cmp.Or(cfg.RenewInterval, t.ttl/3)
	if renew < 10*time.Millisecond || renew > t.ttl/2 {
		return nil, refuse("LeaseConfig.RenewInterval", "0 (a third of TTL) or from 10ms to half of TTL", "%s", cfg.RenewInterval)
	}
	retry := cmp.Or(cfg.RetryInterval, max(renew/16, time.Millisecond))
	if retry < time.Millisecond || retry > t.ttl/2 {
		return nil, refuse("LeaseConfig.RetryInterval", "0 (a sixteenth of RenewInterval) or from 1ms to half of TTL", "%s", cfg.RetryInterval)
	}
	longest := t.ttl - lease.Margin(t.ttl)
	valid := cmp.Or(cfg.ValidFor, longest)
	if valid > longest || valid <= 0 {
		return nil, refuse("LeaseConfig.ValidFor", "0 or at most TTL less the margin, "+longest.String(), "%s", cfg.ValidFor)
	}
	if !cfg.NoRenewal && valid <= renew {
		return nil, refuse("LeaseConfig.ValidFor", "longer than RenewInterval, "+renew.String(), "%s", cfg.ValidFor)
	}
	if cfg.MaxHold < 0 {
		return nil, refuse("LeaseConfig.MaxHold", "0 or positive", "%s", cfg.MaxHold)
	}
	if cfg.MaxHold > 0 && cfg.NoRenewal {
		return nil, refuse("LeaseConfig.MaxHold", "0 where NoRenewal is set, as there is no renewing to cap", "%s", cfg.MaxHold)
	}
	if err := checkIdentity("LeaseConfig.Identity", t.identity); err != nil {
		return nil, err
	}
	t.times = lease.Times{Valid: valid, Renew: renew, Retry: retry, Try: t.timeout(), MaxHold: cfg.MaxHold}
	if cfg.NoRenewal {
		t.times.Renew = 0
	}
	return t, nil
}

// timeout is how long one request for a lease of these terms may go unanswered
// before it is sent again: soon enough to try more than once within the TTL.
func (t *leaseTerms) timeout() time.Duration {
	return min(max(t.ttl/3, 50*time.Millisecond), 3*time.Second)
}

// refresh is how often a waiter looks although nothing was heard. The line
// forgets who is not heard of for three times as long (lapse_of in Lua).
func (t *leaseTerms) refresh() time.Duration { return max(t.ttl, time.Second) * 11 / 10 }

func checkName(field, name string) error {
	if rule := textFault(name, 200, true); rule != "" {
		return &ConfigError{Field: field, Value: abbreviate(name), Rule: rule}
	}
	return nil
}

// isRunnersName: jobs and elections use the name.
func isRunnersName(name string) bool {
	return strings.HasPrefix(name, jobNames) || strings.HasPrefix(name, electionNames)
}

// checkUserName also keeps users' names apart from the runners'.
func checkUserName(name string) error {
	if isRunnersName(name) {
		return &ConfigError{Field: "name", Value: abbreviate(name), Rule: "without the prefixes " + jobNames + " and " + electionNames + ", which jobs and elections use"}
	}
	return checkName("name", name)
}

func checkIdentity(field, identity string) error {
	if rule := textFault(identity, 200, false); rule != "" {
		return &ConfigError{Field: field, Value: abbreviate(identity), Rule: rule}
	}
	return nil
}

// textFault says what a text must be that s is not, or nothing.
func textFault(s string, longest int, name bool) string { return input.Fault(s, longest, name) }

// abbreviate quotes a value for an error without repeating all of a long one.
func abbreviate(s string) string { return input.Quote(s) }

func millis(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}
