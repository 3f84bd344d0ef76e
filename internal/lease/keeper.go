package lease

import (
	"context"
	"time"
)

// A Keeper ends and renews any number of leases. It needs two goroutines and two timers,
// from the first lease on.
type Keeper struct {
	clock    *Clock
	expired  error
	expiry   *expiry
	renewals *renewals
}

// Config configures a Keeper. All fields are required.
type Config struct {
	Clock   *Clock
	Renewer Renewer

	// Expired is the cause of the end of a lease whose time is over.
	Expired error
}

// A Renewer sends renewals to the servers. No method except Renew may block.
type Renewer interface {
	// Stream returns the stream that carries the renewals of a lease at present. The
	// Keeper calls it when the lease begins, and again before each renewal.
	Stream(l *Lease) Stream

	// Renew renews leases in one round trip on the stream. The requests are sent at t0. It
	// calls Extend or End for each lease that was answered, unless Stream has changed for
	// this lease: the answer of a former server does not count. done reports which leases
	// need no other try. Renew returns when ctx ends, and ignores an answer that arrives
	// later than within after t0.
	Renew(ctx context.Context, stream Stream, t0, within time.Duration, leases []*Lease) (done []bool)

	// Late records how long after its due time a renewal was sent.
	Late(by time.Duration)
}

// A Stream carries renewals to one server. Leases with equal Streams share batches; a
// Stream that does not answer does not delay the leases of another Stream. The dynamic
// type is comparable.
type Stream any

// NewKeeper starts a Keeper.
func NewKeeper(cfg Config) *Keeper {
	k := &Keeper{clock: cfg.Clock, expired: cfg.Expired}
	k.expiry = newExpiry(k.clock, k.lost)
	k.renewals = newRenewals(k.clock, cfg.Renewer)
	return k
}

// Close stops the Keeper's goroutines. All leases must have ended.
func (k *Keeper) Close() {
	k.renewals.close()
	k.expiry.close()
}

// RenewAll renews all leases at once, because another server has become the primary. It may
// lack a lease, or its last renewal.
func (k *Keeper) RenewAll() {
	k.RenewMoved(func(*Lease) bool { return true })
}

// RenewMoved renews the leases at once that have moved to another server. moved must not block.
func (k *Keeper) RenewMoved(moved func(*Lease) bool) { k.renewals.renewNow(moved) }

// lost completes the end of leases whose time is over.
func (k *Keeper) lost(leases []*Lease) {
	for _, l := range leases {
		l.cleanUp()
	}
	for _, l := range leases {
		l.holder.Lost(l.ending.cause())
	}
}
