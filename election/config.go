package election

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/lock"
)

// Callbacks are the functions that a LeaderElector calls. OnStartedLeading and OnStoppedLeading run on Run's
// goroutine, one after the other. OnNewLeader runs on another goroutine.
type Callbacks struct {
	// OnStartedLeading is called when this replica leads. Its context is done when leadership ends; context.Cause
	// returns the reason, and lockcore.FromContext the lease with the fencing token. If the callback returns before
	// that, this replica resigns, and campaigns again after a pause. No other replica leads before OnStartedLeading
	// has returned, unless the lease is lost or DrainTimeout is over. Required.
	OnStartedLeading func(ctx context.Context)

	// OnStoppedLeading is called once after each OnStartedLeading has returned and leadership is released. Another
	// replica may lead by then. Required.
	OnStoppedLeading func()

	// OnNewLeader is called with the identity of a new leader, this replica included. Calls are in order, never
	// overlap, and never repeat the identity of the call before. If leaders change while a call runs, the next call
	// gets only the latest identity. A slow call delays no leadership. Before Run returns, it waits for an unfinished
	// call, for at most ShutdownTimeout. Optional.
	OnNewLeader func(identity string)
}

// Config configures a LeaderElector. Its zero value is a working default. All replicas
// should use the same durations. The identity of a replica, the Logger and the metrics come from its Client.
type Config struct {
	// LeaseDuration is how long the other replicas wait for a leader that died, counted from its last renewal.
	// Default 15 s; from 100 ms to 24 h, in whole milliseconds.
	LeaseDuration time.Duration

	// RenewDeadline is how long after its last renewal a leader continues if the server does not answer. It must be
	// less than LeaseDuration by more than the margin for clocks that run at different rates, 1 % of LeaseDuration +
	// 2 ms. The work must stop between RenewDeadline and LeaseDuration. Default two thirds of LeaseDuration: 10 s.
	RenewDeadline time.Duration

	// RetryPeriod is the time between two renewals. A failed renewal is retried after a sixteenth of RetryPeriod, and
	// an unanswered renewal after half of the time left until RenewDeadline, but not before 10 ms have passed.
	// RetryPeriod must be less than RenewDeadline/1.2 and at most LeaseDuration/2. It does not delay candidates,
	// because they do not poll. Default two fifteenths of LeaseDuration: 2 s.
	RetryPeriod time.Duration

	// DrainTimeout is how long OnStartedLeading may take to return after its context was ended by Run's context,
	// Resign or TransferTo. The lease is renewed until the callback has returned or DrainTimeout is over. Then
	// renewal ends, Check fails, and another replica leads within LeaseDuration. From then on, only the token
	// distinguishes the writes of the two replicas. Default 0: no limit. Then two replicas never lead at the same
	// time, and Check fails when the callback takes long.
	DrainTimeout time.Duration

	// ShutdownTimeout is how long Run may take to return after its context has ended, whether or not the server
	// answers, if OnStartedLeading returns when its context is done. Run waits for a callback that takes longer, and
	// then has a fifth of ShutdownTimeout to release leadership. Default 10 s.
	ShutdownTimeout time.Duration

	// Healthy is called at the start of Run, and RetryPeriod after each call has returned, on a goroutine of its own, beside
	// the callbacks. Calls do not overlap. The context of a call ends after RetryPeriod, and with Run. While Healthy
	// returns an error, or has not returned within RetryPeriod, this replica does not campaign, and a leader resigns: the
	// context of its work ends with ErrResigned and the error. The leader resigns within two RetryPeriods after a fault,
	// or later if a call that began before the fault returns nil. When Healthy returns nil again, the replica campaigns at the
	// end of the queue, and if it has led, after a pause of RetryPeriod up to LeaseDuration. If no replica is healthy, none
	// leads. Run waits for a call for at most ShutdownTimeout. If the call takes longer, Healthy counts as failing in
	// the next Run until it has returned. Default: none.
	Healthy func(ctx context.Context) error

	// Once makes Run return when its first leadership has ended, for whatever reason. Default: Run campaigns again.
	Once bool

	// Metadata is stored in the record while this replica leads, for example an address or
	// a version. At most 4096 bytes as JSON, and no secrets.
	Metadata map[string]string
}

const maxMetadata = 4096 // bytes

// complete fills in the defaults and checks the rules of client-go and of leases.
func (cfg Config) complete() (Config, error) {
	cfg.LeaseDuration = cmp.Or(cfg.LeaseDuration, 15*time.Second)
	cfg.RenewDeadline = cmp.Or(cfg.RenewDeadline, cfg.LeaseDuration*2/3)
	cfg.RetryPeriod = cmp.Or(cfg.RetryPeriod, cfg.LeaseDuration*2/15)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, 10*time.Second)
	check := func(valid bool, field string, value time.Duration, rule string) error {
		if valid {
			return nil
		}
		return refusal("Config."+field, value.String(), rule)
	}
	shortest, deadlineLimit, longestPeriod := 100*time.Millisecond, cfg.LeaseDuration-lease.Margin(cfg.LeaseDuration), cfg.LeaseDuration/2
	return cfg, cmp.Or(
		check(cfg.LeaseDuration >= shortest && cfg.LeaseDuration <= 24*time.Hour && cfg.LeaseDuration%time.Millisecond == 0,
			"LeaseDuration", cfg.LeaseDuration, "0 (15s) or whole milliseconds from 100ms to 24h"),
		check(cfg.RenewDeadline > 0, "RenewDeadline", cfg.RenewDeadline, "0 (two thirds of LeaseDuration) or positive"),
		check(cfg.RetryPeriod >= 10*time.Millisecond, "RetryPeriod", cfg.RetryPeriod,
			"0 (two fifteenths of LeaseDuration) or at least 10ms"),
		check(cfg.RenewDeadline < deadlineLimit, "RenewDeadline", cfg.RenewDeadline,
			fmt.Sprintf("less than LeaseDuration minus the margin for clocks, %s", deadlineLimit)),
		check(cfg.RetryPeriod*6/5 < cfg.RenewDeadline, "RetryPeriod", cfg.RetryPeriod,
			fmt.Sprintf("less than RenewDeadline/1.2, %s", cfg.RenewDeadline*5/6)),
		check(cfg.RetryPeriod <= longestPeriod, "RetryPeriod", cfg.RetryPeriod,
			fmt.Sprintf("at most half of LeaseDuration, %s", longestPeriod)),
		check(cfg.ShutdownTimeout >= 0, "ShutdownTimeout", cfg.ShutdownTimeout, "0 (10s) or positive"),
		check(cfg.DrainTimeout >= 0, "DrainTimeout", cfg.DrainTimeout, "0 (no limit) or positive"),
	)
}

func (cfg Config) lease() *lock.LeaseConfig {
	return &lock.LeaseConfig{
		TTL: cfg.LeaseDuration, ValidFor: cfg.RenewDeadline, RenewInterval: cfg.RetryPeriod,
	}
}
