package statusz_test

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/statusz"
)

// If Redis does not answer a search for names, the page says so, even if it shows nothing yet. The
// outage does not delay the next search.
func TestOutageDuringASearch(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		hold(e, "a", "orders")
		client, network := e.Linked("page")
		network.Partition()
		b := open(e, newPage(e, client, statusz.Config{}), "")
		e.Pass(5 * time.Second)
		if b.staleness() == "" {
			e.Error("after 5 s without an answer, the page is not stale")
		}
		e.Pass(time.Minute)
		if b.staleness() == "" {
			e.Error("after a minute without an answer, the page is not stale")
		}
		network.Heal()
		e.Pass(30 * time.Second)
		if r := b.row("locks", "orders"); len(r.Holders) != 1 || b.staleness() != "" {
			e.Errorf("30 s after the outage: the lock is %+v, stale: %q", r, b.staleness())
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
