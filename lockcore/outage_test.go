package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A lease of 10 s outlives an outage of 6.2 s that begins at the worst moment, right
// before a renewal: refused connections, a server that hangs, and connections that stay
// dead for good where new ones can be made.
//
// Caught mutants: a try of a third of the TTL, whatever is left; a pause of a twelfth of
// the TTL after a failure.
func TestFault72_OutageBeforeARenewal(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]func(e *env, f *lockcoretest.Faults){
		"refused": func(e *env, _ *lockcoretest.Faults) {
			e.Bubble.Stop()
			e.Pass(6200 * time.Millisecond)
			must(e, e.Bubble.Start(false))
		},
		"hanging": func(e *env, _ *lockcoretest.Faults) {
			e.Bubble.Hang()
			e.Pass(6200 * time.Millisecond)
			e.Bubble.Unhang()
		},
		"dead flows": func(e *env, f *lockcoretest.Faults) {
			f.Partition()
			e.Pass(3 * time.Second)
			f.Cut()
			f.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				a, f := e.Linked("a")
				lease := e.try(e.mutex(a, "orders", ttl(10*time.Second)))
				e.Pass(6660 * time.Millisecond) // renewed at 3.3 s, and to be at 6.7 s
				outage(e, f)
				e.Pass(time.Minute)
				if lease.Context().Err() != nil {
					e.Fatalf("the lease ended: %v", context.Cause(lease.Context()))
				}
				e.unlock(lease)
			})
		})
	}
}
