package chaos

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

// peers are libraries with mutexes, and what they need. gocron has jobs, and noonlock has both.
var peers = []struct {
	name, library string
	start         func(t testing.TB, ttl time.Duration) *topology
	kinds         []string
}{
	{"noonlock", "", one, []string{history.Mutex, history.Job}},
	{"noonlock, quorum of five", "", quorum, []string{history.Mutex}},
	{"SET NX PX", "SET NX", one, []string{history.Mutex}},
	{"redislock", "redislock", one, []string{history.Mutex}},
	{"redsync", "redsync", one, []string{history.Mutex}},
	{"redsync, five servers", "redsync", quorum, []string{history.Mutex}},
	{"rueidislock", "rueidislock", one, []string{history.Mutex}},
	{"client-go on noonlock's lock", "client-go", one, []string{history.Mutex}},
	{"the same with Lock.Bind", "client-go with Bind", one, []string{history.Mutex}},
	{"etcd", "etcd", etcd, []string{history.Mutex}},
	{"gocron with redsync", "gocron", one, []string{history.Job}},
}

// TestPeers runs other libraries with the nemesis and the seed of ours, without losses of data, and prints a table of
// what goes wrong. PEERS=1 selects it.
func TestPeers(t *testing.T) {
	if os.Getenv("PEERS") == "" {
		t.Skip("PEERS is not set")
	}
	lasts, seed := options(t)
	ours := testenv.Call(plain()).Must(t)
	theirs := testenv.Call(build("peers", "", "-tags=peers")).Must(t)
	rows := make([]string, len(peers))
	t.Run("all", func(t *testing.T) {
		for i, p := range peers {
			t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				// Leases of client-go have whole seconds, and those of etcd at least two.
				cfg := history.Config{
					Seed: seed, TTL: 3 * time.Second, Every: 3 * time.Second, Holds: 15, Slow: 3 * time.Millisecond,
					Library: p.library, Kinds: p.kinds, Peers: true,
				}
				binary := theirs
				if p.library == "" {
					binary = ours
				}
				top := p.start(t, cfg.TTL)
				top.faults = slices.DeleteFunc(top.faults, func(f fault) bool {
					return f.class == "D" || top.quorum && (f.name == "flush" || f.name == "restart empty")
				})
				rows[i] = row(p.name, newWorld(t, binary, top, 5, false, cfg).run(p.name, lasts))
			})
		}
	})
	table := []string{
		"| library | leases | two holders | stale writes | hung waiters | late ends (longest) | ticks | twice | lost |",
		"|" + strings.Repeat(" --- |", 9),
	}
	table = append(table, rows...)
	t.Logf("for 1,000 leases or ticks, TTL 3 s, seed %d, %v:\n%s", seed, lasts, strings.Join(table, "\n"))
}

func row(name string, v judge.Verdict) string {
	rules := v.Rules()
	of := func(all int, found ...string) string {
		sum := 0
		for _, rule := range found {
			sum += rules["S "+rule]
		}
		if all == 0 {
			return ""
		}
		return fmt.Sprintf("%.3g", 1000*float64(sum)/float64(all))
	}
	leases := v.Leases[history.Mutex]
	late := of(leases, "work after its lease")
	if v.Longest > 0 {
		late += fmt.Sprintf(" (%.1f s)", v.Longest.Seconds())
	}
	return fmt.Sprint("| ", strings.Join([]string{
		name, strconv.Itoa(leases), of(leases, "two holders"), of(leases, "stale write"), of(leases, "a waiter hangs"), late,
		strconv.Itoa(v.Ticks), of(v.Ticks, "a tick twice", "an effect twice"), of(v.Ticks, "a tick is lost", "an effect is lost"),
	}, " | "), " |")
}
