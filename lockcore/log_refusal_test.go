package lockcore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Renewals that only an operator can make succeed are errors, once for each lease until one
// of its renewals succeeds. Others are details.
func TestFault60_RefusedRenewalsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		log := &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Logger()})
		for _, name := range []string{"x", "y"} {
			e.try(e.mutex(c, name, lockcore.LeaseConfig{TTL: 30 * time.Second}))
		}
		want := func(what string, lines, errors int) {
			e.Helper()
			if n := log.Count("renewal failed"); n < lines {
				e.Errorf("%s: %d renewals failed, want at least %d", what, n, lines)
			}
			if n := log.Count(`"msg"="renewal failed" "error"=`); n != errors {
				e.Errorf("%s: %d errors, want %d:\n%s", what, n, errors, log)
			}
		}
		server := e.Bubble.Server()
		for round := 1; round <= 2; round++ {
			server.SetError("NOPERM this user has no permissions")
			time.Sleep(15 * time.Second)
			want("refused", 4*round, 2*round)
			server.SetError("")
			time.Sleep(15 * time.Second)
		}
		before := log.Count("renewal failed")
		server.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(15 * time.Second)
		want("loading", before+2, 4)
		server.SetError("")
		time.Sleep(15 * time.Second)
		if n := log.Count("lease lost"); n != 0 {
			e.Errorf("%d leases lost", n)
		}
	})
}

// A self-test that is refused is an error, once, however often it is repeated.
func TestFault60_RefusedPublishIsLoggedOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
			if cmd != "PUBLISH" {
				return false
			}
			p.WriteError("NOPERM this user has no permissions to run the 'publish' command")
			return true
		})
		log := &testenv.Log{}
		opt, faults := e.Link()
		c := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Logger()})
		m := e.mutex(c, "x", lockcore.LeaseConfig{})
		lease := e.try(m)
		waiter := e.inLine(m) // begins the subscription
		for range 5 {
			time.Sleep(2 * time.Minute)
			if faults.CutSubscriptions() == 0 {
				e.Fatal("there is no subscription")
			}
		}
		time.Sleep(time.Minute)
		e.unlock(lease)
		e.unlock(waiter.granted())
		if n := log.Count(`"msg"="receiver count not trusted`, `"error"="NOPERM`); n != 1 || log.Count("receiver count not trusted") != 1 {
			e.Errorf("%d errors, want 1:\n%s", n, log)
		}
	})
}
