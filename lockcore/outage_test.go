package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A lease of 10 s outlives an outage of 6.2 s that begins at the worst moment, right
// before a renewal, whatever its kind.
//
// Caught mutants: a try of a third of the TTL, whatever is left; a pause of a twelfth of
// the TTL after a failure.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				o := outage(e.Bubble, func(err error) { must(e, err) })
				c := e.ClientWith(o.Options, lockcore.Config{Identity: "a"})
				lease := e.try(e.mutex(c, "orders", ttl(10*time.Second)))
				e.Pass(6660 * time.Millisecond) // renewed at 3.3 s, and to be at 6.7 s
				o.Last(6200 * time.Millisecond)
				e.Pass(time.Minute)
				if lease.Context().Err() != nil {
					e.Fatalf("the lease ended: %v", context.Cause(lease.Context()))
				}
				e.unlock(lease)
				o.Faults.Heal()
			})
		})
	}
}
