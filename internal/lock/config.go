package lock

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Config is a lockcore.Config, which has the documentation.
type Config struct {
	Prefix         string
	Identity       string
	Logger         logr.Logger
	Registerer     prometheus.Registerer
	SumMetrics     bool
	TokenRetention time.Duration
	LockDelay      time.Duration
	MinReplicas    int
}

// A LeaseConfig is a lockcore.LeaseConfig, which has the documentation.
type LeaseConfig struct {
	TTL           time.Duration
	RenewInterval time.Duration
	ValidFor      time.Duration
	NoRenewal     bool
	Wait          time.Duration
}

const (
	minTTL = 100 * time.Millisecond
	maxTTL = 24 * time.Hour

	defaultTTL = 10 * time.Second

	// ledgerRetention is the TokenRetention of the names of jobs and elections.
	ledgerRetention = 7 * 24 * time.Hour

	// tombTTL is longer than a request can be in flight.
	tombTTL = 5 * time.Minute
)

// counterPause is the time after a grant in which further grants of the name do not set the TTL of the token counter
// again. It is short, as another client may have set a shorter TTL.
const counterPause = time.Second

// leaseTerms is a LeaseConfig with its defaults filled in. Names share it, and do not change it.
type leaseTerms struct {
	cfg  LeaseConfig
	keep time.Duration // shortest TTL of the token counter after a grant

	ttl   time.Duration
	times lease.Times

	// ttl, and keep with counterPause, in ms.
	ttlText, keepText string
}

// terms checks the configuration. The error is a *noonlock.ConfigError for the first invalid field.
func (cfg LeaseConfig) terms() (*leaseTerms, error) {
	t := &leaseTerms{ttl: cmp.Or(cfg.TTL, defaultTTL)}
	if t.ttl < minTTL || t.ttl > maxTTL || t.ttl%time.Millisecond != 0 {
		return nil, Refuse("LeaseConfig.TTL", "0 (10s) or whole milliseconds from 100ms to 24h", cfg.TTL)
	}
	renew := cmp.Or(cfg.RenewInterval, t.ttl/3)
	if renew < 10*time.Millisecond || renew > t.ttl/2 {
		return nil, Refuse("LeaseConfig.RenewInterval", "0 (a third of TTL) or from 10ms to half of TTL", cfg.RenewInterval)
	}
	retry := max(renew/16, time.Millisecond)
	longest := t.ttl - lease.Margin(t.ttl)
	valid := cmp.Or(cfg.ValidFor, longest)
	if valid > longest || valid <= 0 {
		return nil, Refuse("LeaseConfig.ValidFor", "0 or at most TTL less the margin ("+longest.String()+")", cfg.ValidFor)
	}
	if !cfg.NoRenewal && valid <= renew {
		return nil, Refuse("LeaseConfig.ValidFor", "longer than RenewInterval ("+renew.String()+")", cfg.ValidFor)
	}
	if cfg.Wait < 0 {
		return nil, Refuse("LeaseConfig.Wait", "0 (no limit) or positive", cfg.Wait)
	}
	t.ttlText = decimal(t.ttl)
	t.times = lease.Times{Valid: valid, Renew: renew, Retry: retry, Try: t.timeout()}
	if cfg.NoRenewal {
		t.times.Renew = 0
	}
	return t, nil
}

// timeout returns how long one request may stay unanswered before it is retried. It is
// short enough for several tries within the TTL.
func (t *leaseTerms) timeout() time.Duration {
	return min(max(t.ttl/3, 50*time.Millisecond), 3*time.Second)
}

// replicated returns a request that counts only if MinReplicas replicas have acknowledged it.
func (t *leaseTerms) replicated(r wire.Request) wire.Request { return r.Replicated(t.timeout() / 2) }

// refresh returns the interval at which a waiter checks without a message. The queue drops
// a waiter that has not checked for three intervals (part_place.lua).
func (t *leaseTerms) refresh() time.Duration { return max(t.ttl, time.Second) * 11 / 10 }

// CheckName checks the name of a lock or an owner.
func CheckName(field, name string) error { return checkText(field, name, 200, true) }

// CheckIdentity checks a text that identifies a holder to people.
func CheckIdentity(field, identity string) error { return checkText(field, identity, 200, false) }

func checkText(field, text string, longest int, name bool) error {
	if rule := input.Fault(text, longest, name); rule != "" {
		return Refuse(field, rule, input.Quote(text))
	}
	return nil
}

// The prefixes of the names that jobs and elections use. lockcore refuses them for users' locks,
// even in a program that imports neither package: another program may use the same server.
const (
	JobNames      = "job/"
	ElectionNames = "election/"
)

// IsReserved reports whether jobs or elections use the name.
func IsReserved(name string) bool {
	return strings.HasPrefix(name, JobNames) || strings.HasPrefix(name, ElectionNames)
}

// millis returns d in ms, rounded up.
func millis(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}

func decimal(d time.Duration) string { return strconv.FormatInt(millis(d), 10) }

// A request of an operator is sent again after AskFor without an answer, until AskWithin has passed in all.
const (
	AskFor    = defaultTTL / 5
	AskWithin = 2 * defaultTTL / 3
)
