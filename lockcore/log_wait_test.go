package lockcore_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Calls that wait say for whom, within 5 s and once for a name, and once that the server is away and back.
func TestWaitsSayWhy(t *testing.T) {
	for kind, o := range testenv.Outages() {
		if kind != "refused" && kind != "hanging" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(e *env) {
				outage, log := o(e.Env), &testenv.Log{}
				c := e.ClientWith(outage.Options, lockcore.Config{Identity: "b", Logger: log.Info("")})
				e.try(e.mutex(e.Client("a"), "orders", ttl(10*time.Second)))
				for range 20 {
					e.queued(e.mutex(c, "orders", ttl(10*time.Second)))
				}
				e.Pass(5 * time.Second)
				if n := log.Count("waiting for a lock", `"name"="orders" "holder"="a"`); n != 1 || log.Count("waiting") != 1 {
					e.Errorf("while others hold the lock:\n%s", log)
				}
				outage.Begin()
				for _, name := range []string{"x", "y"} {
					m := e.mutex(c, name, ttl(10*time.Second))
					go func() { _, _ = m.Lock(e.Context()) }()
				}
				e.Pass(5 * time.Second)
				if log.Count("lock request failed; retrying", `"locks"=`, `"err"=`) != 1 {
					e.Errorf("during the outage:\n%s", log)
				}
				outage.End()
				e.Pass(5 * time.Second)
				log.Lines(e, 1, "the server answers again", `"locks"=`, `"after"=`)
			})
		})
	}
}
