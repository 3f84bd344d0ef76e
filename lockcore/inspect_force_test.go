package lockcore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// A heldState is a state of a held lock, and how lock_inspect reports it.
type heldState struct {
	name    string
	kind    string // as lock_inspect reports it
	value   string // of a string
	entries []ownedEntry
}

func heldStates() []heldState {
	entry := func(attempt string, lasts time.Duration) ownedEntry {
		return ownedEntry{attempt[strings.Index(attempt, "/")-1:][:1], attempt, lasts}
	}
	const (
		one, same = "ns1:ALIVE.1.t.r/one a", "ns1:ALIVE.2.t.r/one b"
		two       = "ns1:ALIVE.3.t.r/two c"
		writes    = "ns1:ALIVE.4.t.w/three d"
	)
	minute := time.Minute
	return []heldState{
		{name: "free"},
		{name: "mine", kind: "string", value: me},
		{name: "another's", kind: "string", value: living},
		{name: "empty", kind: "string"},
		{name: "a list", kind: "other"},
		{name: "a hash", kind: "other"},
		{name: "an owner that writes twice", kind: "ns1", entries: []ownedEntry{entry("ns1:ALIVE.1.t.w/one a", minute), entry("ns1:ALIVE.2.t.w/one b", time.Hour)}},
		{name: "an attempt of it", kind: "ns1", entries: []ownedEntry{entry("ns1:ALIVE.2.t.w/one b", time.Hour)}},
		{name: "a reader", kind: "ns1", entries: []ownedEntry{entry(one, time.Hour)}},
		{name: "a reader twice", kind: "ns1", entries: []ownedEntry{entry(one, time.Hour), entry(same, minute)}},
		{name: "two readers", kind: "ns1", entries: []ownedEntry{entry(one, time.Hour), entry(same, minute), entry(two, minute/2)}},
		{name: "the second reader", kind: "ns1", entries: []ownedEntry{entry(two, minute/2)}},
		{name: "a writer", kind: "ns1", entries: []ownedEntry{entry(writes, minute)}},
	}
}

func (e *env) establishHeld(s heldState, queue []string) {
	e.Helper()
	e.establishOwned("orders", ownedState{kind: s.kind, entries: s.entries, queue: queue})
	key := e.key("orders", "lock")
	must(e, e.Raw.Del(e.Context(), e.key("orders", "forced"), e.key("orders", "releases")).Err())
	switch {
	case s.kind == "string":
		must(e, e.Raw.Set(e.Context(), key, s.value, time.Minute).Err())
	case s.name == "a list":
		must(e, e.Raw.RPush(e.Context(), key, "x").Err())
	case s.name == "a hash":
		must(e, e.Raw.HSet(e.Context(), key, "a", "b").Err())
	}
}

func (e *env) heldSnapshot() ownedSnapshot {
	e.Helper()
	if e.Raw.Type(e.Context(), e.key("orders", "lock")).Val() == "list" {
		return ownedSnapshot{snapshot: e.snapshot("orders")}
	}
	return e.ownedSnapshot("orders")
}

// reported returns the attempts that lock_inspect reports for a state, sorted.
func (s heldState) reported() []string {
	if s.kind == "string" {
		return []string{s.value}
	}
	var all []string
	for _, x := range s.entries {
		all = append(all, x.attempt)
	}
	slices.Sort(all)
	return all
}

// A lock was seen in one state and is force-released in another. The seen holders that
// still hold it lose it, once, and no others do. The lock ends with the last remaining
// entry. The waiters near the head of the queue are notified if they may acquire something.
func TestForceInEveryState(t *testing.T) {
	onOneServer(t, func(e *env) {
		heard := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		must(e, err)
		load := func(script string) string {
			source, err := lockcore.ScriptSource(script)
			must(e, err)
			return e.Raw.ScriptLoad(e.Context(), source).Val()
		}
		inspect, force := load("lock_inspect"), load("lock_force")
		k := e.scriptKeys("orders")
		queue := []string{living, "ns1:ALIVE.5.t.w/five e", "ns1:ALIVE.6.t.r/six f", "nl1:ALIVE.7.t/seven"}
		for _, then := range heldStates() {
			e.establishHeld(then, queue)
			answer, err := e.Raw.EvalSha(e.Context(), inspect, k[:4]).Slice()
			must(e, err)
			var seen []string
			for row := range slices.Chunk(answer[2].([]any), 4) {
				seen = append(seen, row[0].(string))
			}
			if slices.Sort(seen); answer[0] != then.kind || !slices.Equal(seen, then.reported()) {
				e.Errorf("%s: inspected as %v", then.name, answer)
			}
			for _, now := range heldStates() {
				if then.kind == "" {
					continue // nothing to take
				}
				e.establishHeld(now, queue)
				before := e.heldSnapshot()
				for run := range 2 {
					got, err := e.Raw.EvalSha(e.Context(), force, []string{k[0], k[2], e.key("orders", "forced"), e.key("orders", "releases")}, argv("lock_force", then.kind, strings.Join(seen, "\n"))...).Int64()
					where := fmt.Sprintf("%s, then %s, run %d", then.name, now.name, run+1)
					if err != nil {
						e.Errorf("%s: %v", where, err)
						continue
					}
					checkForced(e, where, then, now, run == 0, before, got, e.messages(heard, "noonlock:ch:ALIVE"))
				}
			}
		}
	})
}

func checkForced(e *env, where string, then, now heldState, first bool, before ownedSnapshot, got int64, messages []string) {
	e.Helper()
	after := e.heldSnapshot()
	seen, taken := then.reported(), int64(0)
	remarks := map[string]string{}
	left, ends := map[string]int64{}, int64(0)
	switch {
	case then.kind != now.kind:
		maps.Copy(left, before.until)
	case now.kind == "other":
		taken = 1
		remarks[""] = "op\nwhy"
	case now.kind == "string" && now.value == then.value:
		taken = 1
		remarks[now.value] = "op\nwhy"
	default:
		for attempt, until := range before.until {
			if slices.Contains(seen, attempt) {
				taken++
				remarks[attempt] = "op\nwhy"
				continue
			}
			left[attempt] = until
		}
	}
	for _, until := range left {
		ends = max(ends, until)
	}
	gone := taken > 0 && len(left) == 0
	acts := e.Raw.LLen(e.Context(), e.key("orders", "releases")).Val()
	if acts != min(taken, 1) {
		e.Errorf("%s: %d releases are recorded", where, acts)
	}
	if !first {
		delete(remarks, "") // of no attempt
		if int(got) != len(remarks) || len(messages) > 0 {
			e.Errorf("%s: the second call released %d, want %d; messages %q", where, got, len(remarks), messages)
		}
	} else if got != taken || len(messages) != min(int(taken), 1) {
		e.Errorf("%s: %d were released, want %d; messages %q", where, got, taken, messages)
	}
	if first {
		if got := e.Raw.HGetAll(e.Context(), e.key("orders", "forced")).Val(); !maps.Equal(got, remarks) {
			e.Errorf("%s: remarks %q, want %q", where, got, remarks)
		}
	}
	switch {
	case gone:
		if e.Exists(e.key("orders", "lock")) {
			e.Errorf("%s: the lock is there still: %+v", where, after)
		}
	case taken == 0:
		if !before.same(after) || before.end != after.end {
			e.Errorf("%s: %+v became %+v", where, before, after)
		}
	default:
		if !maps.Equal(left, after.until) || after.end != ends || e.Bubble == nil && after.keyEnd != ends {
			e.Errorf("%s: %v are left until %d, want %v until %d", where, after.until, after.end, left, ends)
		}
	}
	if !slices.Equal(before.queue, after.queue) {
		e.Errorf("%s: the queue became %q", where, after.queue)
	}
}
