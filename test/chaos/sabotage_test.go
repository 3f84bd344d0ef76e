package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

// An edit replaces a text that a source has once.
type edit struct{ file, old, new string }

// A sabotage is a worker, or a resource, without one of the guards, and what the judge must find in its history.
type sabotage struct {
	name   string
	edits  []edit // of files below the root of the repository
	rule   string // that is broken
	kinds  []string
	faults []string
	atOnce int
	// shortest and longest limit the duration of faults, and rest the time between them.
	shortest, longest, rest time.Duration
	cfg                     func(*history.Config)

	careless bool   // the resource compares nothing
	both     []edit // also of the worker that is whole
}

var sabotages = []sabotage{
	{
		name: "no token check", careless: true, rule: "stale write",
		kinds: []string{history.Mutex}, faults: []string{"freeze"}, atOnce: 3,
		cfg: func(c *history.Config) { c.TTL, c.Slow = 300*time.Millisecond, 200*time.Millisecond },
	},
	{
		// The clock of the workers is slower by less than the margin.
		name: "no margin", rule: "two holders",
		edits: []edit{{"internal/lease/lease.go", "return ttl/100 + 2*time.Millisecond", "return 0 * ttl"}},
		both: []edit{{
			"internal/lease/clock_linux.go",
			"return time.Duration(ts.Nano())", "return time.Duration(ts.Nano() / 1000 * 991)",
		}},
		kinds:  []string{history.Mutex, history.Semaphore, history.RW},
		faults: []string{"cut off", "requests held"}, atOnce: 3,
		shortest: 3 * time.Second, longest: 4 * time.Second,
		cfg: func(c *history.Config) { c.TTL, c.Rate, c.Holds = 3*time.Second, 0.991, 3 },
	},
	{
		name: "renewal without its owner", rule: "a loss was not reported",
		edits: []edit{{"lockcore/lua/mutex_renew.lua", "if holder == ARGV[1] then", "if holder then"}},
		kinds: []string{history.Mutex}, faults: []string{"flush"}, atOnce: 1, rest: 3 * time.Second,
		cfg: func(c *history.Config) { c.Holds = 1 },
	},
	{
		name: "no tombstone", rule: "a waiter hangs",
		edits: []edit{{"lockcore/lua/mutex_leave.lua", "tomb = ARGV[1], ARGV[3] or '0'", "tomb = ARGV[1], '0'"}},
		kinds: []string{history.Mutex}, faults: []string{"connections stuck"}, atOnce: 3,
		shortest: 1500 * time.Millisecond, longest: 3500 * time.Millisecond, rest: 4 * time.Second,
		cfg: func(c *history.Config) { c.TTL, c.Holds = 4*time.Second, 0 },
	},
	{
		name: "claim without the watermark", rule: "a tick twice",
		edits: []edit{
			{"singleton/internal/ledger/lua/job_claim.lua", "acting == def and tonumber(tick) <= tonumber(last)", "false"},
			{"singleton/internal/ledger/lua/job_claim.lua", "elseif last ~= known then", "elseif false then"},
		},
		kinds: []string{history.Job}, faults: []string{"freeze", "delay", "connections stuck"}, atOnce: 2,
	},
	{
		name: "fence not raised", rule: "tokens do not grow",
		edits: []edit{
			{"internal/wire/lua/part_token.lua", "local token = time[1] .. micros", "local token = time[1] .. '000000'"},
			{"internal/wire/lua/part_token.lua", "if ahead >= 0 then", "if false then"},
		},
		kinds: []string{history.Mutex}, faults: []string{"freeze"}, atOnce: 1,
	},
	{
		name: "slot given twice", rule: "two holders",
		edits: []edit{{"lockcore/lua/part_owned.lua", "if not taken(low) then", "if false then"}},
		kinds: []string{history.Semaphore}, faults: []string{"freeze"}, atOnce: 1,
	},
	{
		name: "partition kept after its lease", rule: "two holders",
		edits: []edit{
			{
				"internal/lock/lease.go", "Remaining() time.Duration { return l.life.Remaining() }",
				`Remaining() time.Duration {
					if l.forPartition {
						return max(l.life.Remaining(), l.a.terms.ttl)
					}
					return l.life.Remaining()
				}`,
			},
			{
				"internal/lock/lease.go", "Err() error { return l.life.Err() }",
				"Err() error { if l.forPartition { return nil }; return l.life.Err() }",
			},
			{"internal/lock/lease.go", "return l.life.Bind(l.withPartition(parent))", `
				ctx, stop = l.life.Bind(l.withPartition(parent))
				if l.forPartition {
					kept, end := context.WithCancel(context.WithoutCancel(ctx))
					context.AfterFunc(parent, end)
					return kept, stop
				}
				return ctx, stop`},
		},
		kinds: []string{history.Partitions}, faults: []string{"cut off", "requests held"}, atOnce: 2,
	},
}

// TestSabotage shows that the judge finds what it looks for: each sabotaged worker is found, and the whole one passes
// with the same seed for as long.
func TestSabotage(t *testing.T) {
	for _, s := range sabotages {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			found, after := s.run(t, slices.Concat(s.edits, s.both), s.careless, 80*time.Second)
			if !slices.ContainsFunc(found, func(v judge.Violation) bool { return v.Rule == s.rule }) {
				t.Fatalf("not found in %v, only %v", after, found)
			}
			t.Logf("found after %v: %v", after, found[0])
			if found, _ := s.run(t, s.both, false, after); len(found) > 0 {
				t.Errorf("the whole worker: %v", found)
			}
		})
	}
}

// run returns the first serious violations, and when they were found.
func (s sabotage) run(t *testing.T, edits []edit, careless bool, within time.Duration) (
	found []judge.Violation, after time.Duration,
) {
	t.Helper()
	binary, err := plain()
	if len(edits) > 0 {
		binary, err = build(t.Name()[len("TestSabotage/"):]+"-"+time.Now().Format("150405.000"), overlay(t, edits))
	}
	testenv.Must(t, err)
	cfg := history.Config{
		Seed: 1, TTL: time.Second, Slots: 3, Parts: 6, Every: time.Second, Holds: 10, Slow: 3 * time.Millisecond,
		Kinds: s.kinds,
	}
	if s.cfg != nil {
		s.cfg(&cfg)
	}
	w := newWorld(t, binary, one(t, cfg.TTL), 5, careless, cfg)
	client := w.client()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		n := newNemesis(w, cfg.Seed, s.faults...)
		n.shortest, n.longest, n.rest = max(n.shortest, s.shortest), s.longest, max(n.rest, s.rest)
		n.run(ctx, s.atOnce)
	})
	begin := time.Now()
	for len(found) == 0 && ctx.Err() == nil {
		retry.Sleep(ctx, time.Second, nil)
		found = w.judge(w.ledger(client)...).Serious()
	}
	after = time.Since(begin)
	cancel()
	all.Wait()
	for _, x := range w.workers {
		x.kill()
	}
	return found, after
}

// overlay writes edited copies of sources, and returns the file for go build.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	folder := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		source := testenv.Call(filepath.Abs(filepath.Join("..", "..", e.file))).Must(t)
		text := testenv.Call(os.ReadFile(cmp.Or(replace[source], source))).Must(t)
		if strings.Count(string(text), e.old) != 1 {
			t.Fatalf("%s has %q %d times", e.file, e.old, strings.Count(string(text), e.old))
		}
		replace[source] = filepath.Join(folder, filepath.Base(e.file))
		testenv.Must(t, os.WriteFile(replace[source], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600))
	}
	file := filepath.Join(folder, "overlay.json")
	text := testenv.Call(json.Marshal(map[string]any{"Replace": replace})).Must(t)
	testenv.Must(t, os.WriteFile(file, text, 0o600))
	return file
}
