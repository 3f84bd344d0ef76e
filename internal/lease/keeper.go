package lease

import (
	"context"
	"time"
)

// A Keeper ends and renews any number of leases with two goroutines and two timers.
type Keeper struct {
	clock            *Clock
	expired, maxHeld error
	expiry           *expiry
	renewals         *renewals
}

// Config is what a Keeper needs. All fields are required.
type Config struct {
	Clock   *Clock
	Renewer Renewer

	// Expired is the cause of the end of a lease whose time is over, MaxHeld that of one
	// which was renewed for as long as Times.MaxHold allows.
	Expired, MaxHeld error
}

// A Renewer asks the server to renew leases.
type Renewer interface {
	// Renew renews leases by one pipeline, sent at t0 on a connection with a number below
	// Connections, and calls Extend or End of each that was answered. It reports which
	// need no other try, and whether the connection works. It returns when ctx ends, and
	// does not count an answer that comes later than within.
	Renew(ctx context.Context, connection int, t0, within time.Duration, leases []*Lease) (done []bool, works bool)

	// Late is how long after its time a renewal was sent.
	Late(by time.Duration)

	// Mark is called before each Renew. Doubt is given what Mark returned before a
	// renewal that is still unanswered: the connections that were idle since then may be
	// dead, too.
	Mark() time.Duration
	Doubt(mark time.Duration)
}

// Connections is how many renewals are under way at once, at most. More than one is,
// only if answers are late.
const Connections = 3

// NewKeeper starts a Keeper.
func NewKeeper(cfg Config) *Keeper {
	k := &Keeper{clock: cfg.Clock, expired: cfg.Expired, maxHeld: cfg.MaxHeld}
	k.expiry = newExpiry(k.clock, k.lost)
	k.renewals = newRenewals(k.clock, cfg.Renewer)
	return k
}

// Close ends the Keeper's goroutines. The leases must have ended before.
func (k *Keeper) Close() {
	k.renewals.close()
	k.expiry.close()
}

// lost does the rest for leases whose time was over.
func (k *Keeper) lost(leases []*Lease) {
	for _, l := range leases {
		l.settle()
	}
	for _, l := range leases {
		l.holder.Lost(l.ending.cause())
	}
}
