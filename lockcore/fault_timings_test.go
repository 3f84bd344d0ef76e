package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A renewal of leases with a long TTL is not answered, and other leases with a long TTL are
// due. Leases with a short TTL are renewed in time nevertheless.
func TestFault66_LongLeasesDoNotEndShortOnes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		renew := e.script("mutex_renew")
		silent := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: func(cmd []string) bool {
			return renew(cmd) && (cmd[3] == e.key("long0", "lock") || cmd[3] == e.key("long1", "lock"))
		}})
		long := e.try(e.mutex(a, "long0", ttl(time.Minute)))
		e.Pass(15600 * time.Millisecond) // due at 20.6 s, and the first one at 20 s
		next := e.try(e.mutex(a, "long1", lockcore.LeaseConfig{TTL: time.Minute, RenewInterval: 5 * time.Second}))
		e.Pass(4 * time.Second)
		for i, short := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second} {
			lease := e.try(e.mutex(a, fmt.Sprint("short", i), ttl(short)))
			defer e.unlock(lease)
			defer func() {
				if err := lease.Context().Err(); err != nil {
					e.Errorf("the lease with a TTL of %v ended: %v", short, context.Cause(lease.Context()))
				}
			}()
		}
		e.Pass(9 * time.Second)
		silent.Lift()
		e.Pass(time.Minute)
		e.unlock(long)
		e.unlock(next)
	})
}
