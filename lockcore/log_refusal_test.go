package lockcore_test

import (
	"context"
	"slices"
	"strings"
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

// The Client is connected to one shard of a cluster, as New cannot see. A name of another
// shard is refused with MOVED: calls return that at once, also those that would wait, and
// nothing is granted. A renewal of a name that moves is logged as an error.
//
// Caught mutants: MOVED is temporary, so that the call is repeated until its context ends;
// it needs no operator.
func TestFault76_OneShardOfACluster(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		log := &testenv.Log{}
		c := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: log.Logger()})
		here := e.try(e.mutex(c, "here", lockcore.LeaseConfig{TTL: 30 * time.Second}))
		e.try(e.mutex(c, "moves", lockcore.LeaseConfig{TTL: 30 * time.Second}))
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			if !strings.HasPrefix(cmd, "EVAL") || slices.Contains(args, e.key("here", "lock")) {
				return false
			}
			p.WriteError("MOVED 3999 127.0.0.1:7001")
			return true
		})
		began := time.Now()
		m := e.mutex(c, "there", lockcore.LeaseConfig{})
		for name, acquire := range map[string]func(context.Context) (*lockcore.Lease, error){"TryLock": m.TryLock, "Lock": m.Lock} {
			lease, err := acquire(e.Context())
			if lease != nil || err == nil || !strings.Contains(err.Error(), "MOVED 3999 127.0.0.1:7001") || lockcore.IsTemporary(err) {
				e.Errorf("%s: %v, %v; want MOVED, which is not temporary", name, lease, err)
			}
			mustNotBe(e, err, lockcore.ErrNotAcquired, lockcore.ErrUnknown)
		}
		if took := time.Since(began); took > time.Second {
			e.Errorf("the calls took %s", took)
		}
		time.Sleep(time.Minute)
		must(e, here.Context().Err())
		if n := log.Count(`"msg"="renewal failed" "error"="MOVED`); n != 1 {
			e.Errorf("%d errors, want 1:\n%s", n, log)
		}
		e.Bubble.Server().Server().SetPreHook(nil)
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
		waiter := e.queued(m) // begins the subscription
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
