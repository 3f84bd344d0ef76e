package lockcore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// The server pauses in the middle of a script, after it has read the clock and before the
// script writes: for a moment, or for long (its process is stopped). By then the end that
// the script gives a lock's key may have passed, and the key is deleted. The later writes
// of the script must not leave a lock without a kind and an end, because no client could
// ever acquire it.
func TestServerThatStoodStillInAScript(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const stop = 5 * time.Second // the script's clock is that far behind the clock of PEXPIREAT
	late := func(script string) string {
		source, err := lockcore.ScriptSource(script)
		must(e, err)
		for _, clock := range []string{
			"local now = server_ms()\n",
			"local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)\n",
		} {
			source = strings.ReplaceAll(source, clock, fmt.Sprintf("%s - %d\n", strings.TrimSuffix(clock, "\n"), stop.Milliseconds()))
		}
		if n := strings.Count(source, fmt.Sprintf("- %d\n", stop.Milliseconds())); n != 1 {
			e.Fatalf("%s reads the clock in %d places, want 1", script, n)
		}
		return source
	}
	const (
		mine    = "ns1:ALIVE.1.t.r/me id"
		sibling = "ns1:ALIVE.2.t.r/me id"
		writer  = "ns1:ALIVE.2.t.w/me id"
		other   = "ns1:OTHER.3.t.r/other id"
	)
	ended, short, long := -time.Second, stop-time.Second, time.Minute // short: over when the script writes
	const keeps = "ns1:OTHER.9.t.r/keeps id"
	for _, c := range []struct {
		name, script string
		args         []any
		entries      []ownedEntry
	}{
		{"leaves, and another's entry is over", "owned_leave", []any{mine, 0}, []ownedEntry{{"r", mine, long}, {"r", other, ended}}},
		{"leaves, and its owner's other entry is over", "owned_leave", []any{mine, 0}, []ownedEntry{{"r", mine, long}, {"r", sibling, ended}}},
		{"comes in", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", other, ended}}},
		{"acquires while its owner holds", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", sibling, ended}}},
		{"a repeated request that holds", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", mine, ended}}},
		{"renews", "owned_renew", []any{mine, short.Milliseconds()}, []ownedEntry{{"r", mine, ended}}},
		{"renews for less than before", "owned_renew", []any{mine, 500}, []ownedEntry{{"r", mine, ended}}},
		{"downgrades", "owned_downgrade", []any{writer}, []ownedEntry{{"w", writer, ended}}},
	} {
		e.establishOwned("orders", ownedState{kind: "ns1", entries: append(c.entries, ownedEntry{"r", keeps, long})})
		lock := e.key("orders", "lock")
		// The key still exists, as at the start of the script.
		must(e, e.Raw.ZRem(e.Context(), lock, "n:keeps", "t:"+keeps, keeps).Err())
		keys := e.scriptKeys("orders")[:map[string]int{"owned_acquire": 5, "owned_leave": 5, "owned_renew": 1, "owned_downgrade": 4}[c.script]]
		answer, err := e.Raw.Eval(e.Context(), late(c.script), keys, argv(c.script, c.args...)...).Result()
		must(e, err)
		if fmt.Sprint(answer) == "0" {
			e.Errorf("%s: it was not its own: the test shows nothing", c.name)
		}
		if fields := e.Raw.ZRange(e.Context(), lock, 0, -1).Val(); len(fields) > 0 {
			e.Errorf("%s: answered %v, and all is over, but a lock is left: %v, ends in %v", c.name, answer, fields, e.pttl("orders"))
		}
	}
}
