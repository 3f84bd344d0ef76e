package lease

import (
	"context"
	"time"
)

// A Keeper ends and renews any number of leases. It needs two goroutines and two timers, from the first lease on.
type Keeper struct {
	clock    *Clock
	expiry   *expiry
	renewals *renewals
}

// NewKeeper returns a Keeper. expired is the cause of the end of a lease whose time is over.
func NewKeeper(clock *Clock, renewer Renewer, expired error) *Keeper {
	r := &renewals{clock: clock, renewer: renewer, loop: newLoop(), groups: map[Stream]*group{}, wakeAt: never}
	x := &expiry{clock: clock, cause: expired, renewals: r, loop: newLoop(), wakeAt: never}
	return &Keeper{clock: clock, expiry: x, renewals: r}
}

// Begin starts a lease that was granted by a request sent at t0. l must be the zero value.
// The lease's Context carries the values of ctx, but does not end with ctx.
func (k *Keeper) Begin(ctx context.Context, l *Lease, t0 time.Duration, times *Times, holder Holder) {
	l.k, l.times, l.holder, l.acquired = k, times, holder, t0
	l.values = context.WithoutCancel(ctx)
	l.validUntil.Store(int64(t0 + times.Valid))
	k.expiry.add(l)
	k.renewals.add(l)
}

// Close stops the Keeper's goroutines. All leases must have ended.
func (k *Keeper) Close() {
	k.renewals.close()
	k.expiry.close()
}

// RenewMoved renews at once each lease for which moved returns true: its new server may lack the lease or its last
// renewal. moved must not block.
func (k *Keeper) RenewMoved(moved func(*Lease) bool) { k.renewals.renewMoved(moved) }
