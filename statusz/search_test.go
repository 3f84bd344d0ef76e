package statusz_test

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/statusz"
)

// If Redis does not answer the first search for names, the page says so, and is never live before all is read.
func TestOutageDuringASearch(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		hold(e, "a", "orders")
		client, network := e.Linked("page")
		network.Partition()
		b := open(e, newPage(e, client, statusz.Config{}), "")
		for _, lasts := range []time.Duration{2 * time.Second, 3 * time.Second, time.Minute} {
			e.Pass(lasts)
			if live, stale, _ := b.state(); live || (stale == "") != (lasts == 2*time.Second) {
				e.Errorf("%s later: live %t, stale %q", lasts, live, stale)
			}
		}
		network.Heal()
		e.Pass(2 * time.Second)
		if r := b.row("locks", "orders"); len(r.Holders) != 1 || !b.isLive() {
			e.Errorf("2 s after the outage: the lock is %+v, live %t", r, b.isLive())
		}
	})
}

// A search that fails keeps the names that it has not found again.
func TestFailedSearchKeepsNames(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		hold(e, "a", "old")
		b := open(e, newPage(e, e.Client("page"), statusz.Config{}), "")
		shows := func(state string, names ...string) func() bool {
			return func() bool {
				s, _ := b.section("locks")
				return s.State == state && slices.Equal(s.Names, names)
			}
		}
		e.Until("the lock is shown", shows("found", "old"))
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			switch {
			case cmd != "SCAN":
				return false
			case args[0] == "0":
				p.WriteLen(2)
				p.WriteBulk("7")
				p.WriteLen(1)
				p.WriteBulk("noonlock:{new}:lock")
			default:
				p.WriteError("ERR broken")
			}
			return true
		})
		e.Until("a search has failed", shows("failed", "new", "old"))
		e.Bubble.Server().Server().SetPreHook(nil)
		e.Until("a search has found all names", shows("found", "old"))
	})
}
