package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
)

// A Client that holds many leases ends them up to 20 ms early. With a TTL of 2 s or more they
// outlive an outage of 0.62 TTL nevertheless, and with a shorter one an outage that is 20 ms
// shorter. It begins right before a renewal, which is the worst moment.
func TestToleranceWithManyLeases(t *testing.T) {
	const most = 20 * time.Millisecond
	for ttl, lost := range map[time.Duration]time.Duration{
		200 * time.Millisecond: most, 500 * time.Millisecond: most, time.Second: most, 2 * time.Second: 0, 10 * time.Second: 0,
	} {
		t.Run(ttl.String(), func(t *testing.T) {
			outlives := func(outage time.Duration) (yes bool) {
				inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
					long := lease.Times{Valid: time.Hour}
					for range 10_000 {
						begin(t, k, c.Now(), &long, make(holder, 1))
					}
					l := begin(t, k, c.Now(), &lease.Times{
						Valid: ttl - lease.Margin(ttl), Renew: ttl / 3, Retry: ttl / 48, Try: ttl / 3,
					}, make(holder, 1))
					time.Sleep(2*(ttl/3) - time.Millisecond)
					s.set(func(context.Context, sent) (bool, bool) { return false, false })
					time.Sleep(outage)
					s.set(nil)
					time.Sleep(ttl)
					yes = l.Err() == nil
				})
				return yes
			}
			full := ttl * 62 / 100
			if !outlives(full - lost) {
				t.Errorf("the lease was lost in an outage of %v", full-lost)
			}
			if ttl <= time.Second/2 && outlives(full) {
				t.Errorf("the lease outlived an outage of %v: the documentation says less", full)
			}
		})
	}
}
