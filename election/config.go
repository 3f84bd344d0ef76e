package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/lockcore"
)

// Callbacks are what a LeaderElector calls. OnStartedLeading and OnStoppedLeading
// run on Run's goroutine, one after the other; OnNewLeader on another one.
type Callbacks struct {
	// OnStartedLeading is called when this replica leads. Its context is done as
	// soon as that ends; context.Cause says why, TermFrom which term it is. Work
	// that returns early does not end the lead: it goes on until the context is
	// done. Nobody else leads before OnStartedLeading has returned, unless the
	// lease is lost or DrainTimeout is over. Required.
	OnStartedLeading func(ctx context.Context)

	// OnStoppedLeading is called once after each OnStartedLeading, when that has
	// returned and the lead is given up. Another replica may lead by then.
	// Required.
	OnStoppedLeading func()

	// OnNewLeader is called with the identity of the leader when it is another
	// than the one told last: in order, never twice the same, never two calls at
	// a time. It hears of this replica's own lead, too. If leaders change faster
	// than it returns, it is told the latest. A slow call delays no lead; at its end
	// Run waits for it, for ShutdownTimeout at most. Optional.
	OnNewLeader func(identity string)
}

// Config is how a LeaderElector works. Its zero value is a working default. All
// replicas should use the same durations.
type Config struct {
	// Identity under which this replica is known to the others. It is shown, not
	// trusted: two replicas of one identity never lead at once. Default: the
	// Client's, which is the host name and a random suffix unless it was set.
	Identity string

	// LeaseDuration is how long the others wait for a leader that died, counted
	// from its last renewal. Default 15 s; from 100 ms to 24 h, in whole
	// milliseconds.
	LeaseDuration time.Duration

	// RenewDeadline is how long after its last renewal a leader goes on if the
	// server does not answer. It must be less than LeaseDuration by more than the
	// margin for clocks that run at different rates, 1 % of LeaseDuration + 2 ms.
	// What lies between the two is the work's, to stop in. Default two thirds of
	// LeaseDuration: 10 s.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two renewals. After one that failed it is the
	// longest time to the next try: half of what is left of RenewDeadline, if that
	// is less, so that the last tries come close together, but not less than 10 ms
	// apart. 1.2 times as long must be less than RenewDeadline, and twice as long
	// not more than LeaseDuration. Default two fifteenths of LeaseDuration: 2 s.
	// Candidates do not poll; it does not matter for them.
	RetryPeriod time.Duration

	// DrainTimeout is how long OnStartedLeading may take to return when its
	// context was ended by choice: by Run's context, Resign or TransferTo. The
	// lead is renewed until it has returned, or until then. After that renewing
	// ends, Check fails, another replica leads within LeaseDuration, and only the
	// token of the term tells the old leader's writes from the new one's. Default
	// 0: for ever, so that two never lead; then Check fails when it takes long.
	DrainTimeout time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended,
	// whether or not the server answers, if OnStartedLeading returns when its context is
	// done. Work that takes longer is waited for, and then a fifth of ShutdownTimeout is
	// left to release the lead. Default 10 s.
	ShutdownTimeout time.Duration

	// KeepOnCancel leaves the lead to run out by itself when Run's context ends,
	// instead of giving it to the next at once: the others then wait for up to
	// LeaseDuration, as with client-go without ReleaseOnCancel. Resign and TransferTo
	// give it up all the same.
	KeepOnCancel bool

	// Once makes Run return when its first lead has ended, for whatever reason.
	// Default: it stands for election again.
	Once bool

	// Metadata is what the record says of this replica while it leads: an
	// address, a version. At most 4096 bytes as JSON, and no secrets.
	Metadata map[string]string

	// Logger gets what the operator should know; its zero value discards.
	Logger logr.Logger

	// Registerer gets the metrics, described in the package comment. Electors may
	// share one. Default: no metrics.
	Registerer prometheus.Registerer
}

const (
	defaultLease    = 15 * time.Second
	defaultShutdown = 10 * time.Second
)

// ConfigError refuses an input before anything was sent. It is ErrConfig.
type ConfigError struct {
	Field string // such as "Config.RenewDeadline"
	Value string
	Rule  string // what it must be
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("election: %s is %s; it must be %s", e.Field, e.Value, e.Rule)
}

// Is reports true for ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// complete fills in the defaults and checks the rules: client-go's, and those of
// a lease.
func (cfg Config) complete(client *lockcore.Client, cb Callbacks) (Config, error) {
	if client == nil {
		return cfg, &ConfigError{"client", "nil", "a *lockcore.Client"}
	}
	cfg.Identity = cmp.Or(cfg.Identity, client.Identity())
	cfg.LeaseDuration = cmp.Or(cfg.LeaseDuration, defaultLease)
	cfg.RenewDeadline = cmp.Or(cfg.RenewDeadline, cfg.LeaseDuration*2/3)
	cfg.RetryPeriod = cmp.Or(cfg.RetryPeriod, cfg.LeaseDuration*2/15)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, defaultShutdown)
	margin := cfg.LeaseDuration/100 + 2*time.Millisecond
	for _, r := range []struct {
		broken bool
		field  string
		value  any
		must   string
	}{
		{cb.OnStartedLeading == nil, "Callbacks.OnStartedLeading", "nil", "a function"},
		{cb.OnStoppedLeading == nil, "Callbacks.OnStoppedLeading", "nil", "a function"},
		{
			cfg.LeaseDuration < 100*time.Millisecond || cfg.LeaseDuration > 24*time.Hour || cfg.LeaseDuration%time.Millisecond != 0,
			"Config.LeaseDuration", cfg.LeaseDuration, "0 (15s) or whole milliseconds from 100ms to 24h",
		},
		{cfg.RenewDeadline < 1, "Config.RenewDeadline", cfg.RenewDeadline, "0 (two thirds of LeaseDuration) or positive"},
		{cfg.RetryPeriod < 10*time.Millisecond, "Config.RetryPeriod", cfg.RetryPeriod, "0 (two fifteenths of LeaseDuration) or at least 10ms"},
		{
			cfg.RenewDeadline >= cfg.LeaseDuration-margin, "Config.RenewDeadline", cfg.RenewDeadline,
			fmt.Sprintf("less than LeaseDuration minus the margin for clocks, %s", cfg.LeaseDuration-margin),
		},
		{
			cfg.RetryPeriod*6/5 >= cfg.RenewDeadline, "Config.RetryPeriod", cfg.RetryPeriod,
			fmt.Sprintf("so short that 1.2 times as long is less than RenewDeadline, %s", cfg.RenewDeadline),
		},
		{
			cfg.RetryPeriod > cfg.LeaseDuration/2, "Config.RetryPeriod", cfg.RetryPeriod,
			fmt.Sprintf("at most half of LeaseDuration, %s", cfg.LeaseDuration/2),
		},
		{cfg.ShutdownTimeout < 0, "Config.ShutdownTimeout", cfg.ShutdownTimeout, "0 (10s) or positive"},
		{cfg.DrainTimeout < 0, "Config.DrainTimeout", cfg.DrainTimeout, "0 (for ever) or positive"},
	} {
		if r.broken {
			return cfg, &ConfigError{r.field, fmt.Sprint(r.value), r.must}
		}
	}
	return cfg, nil
}

// translate makes lockcore's refusal one of the field here that was its.
func translate(err error) error {
	var refused *lockcore.ConfigError
	if !errors.As(err, &refused) {
		return fmt.Errorf("election: %w", err)
	}
	field := refused.Field
	if field == "LeaseConfig.Identity" {
		field = "Config.Identity"
	}
	return &ConfigError{Field: field, Value: refused.Value, Rule: refused.Rule}
}

func (cfg Config) lease() lockcore.LeaseConfig {
	return lockcore.LeaseConfig{
		TTL: cfg.LeaseDuration, ValidFor: cfg.RenewDeadline,
		RenewInterval: cfg.RetryPeriod, RetryInterval: cfg.RetryPeriod,
		Identity: cfg.Identity,
	}
}
