//go:build !race

package explorer

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
)

// An exploration is one search that is made for a mutant.
type exploration func(tb testing.TB, edits []edit) found

func (tr trial) exploration(l *library) exploration {
	a := tr.atlas() // for all mutants: most scripts are the same in them
	return func(tb testing.TB, edits []edit) found {
		tb.Helper()
		return search(tr.model(tb, l, a, edits, 1), tr.depth, 0, 1)
	}
}

func (tr tickTrial) exploration(l *library) exploration {
	a := tr.atlas()
	return func(tb testing.TB, edits []edit) found {
		tb.Helper()
		return search(tr.model(tb, l, a, edits, 1), tr.depth, 0, 1)
	}
}

// A guard that could be removed without anything noticing it would be of no use, or
// the tests would not be. Each mutant is killed by the exploration, or by the test of
// lockcore that the table names; with NOONLOCK_EXPLORE_ALL=1 those are explored first,
// too. Under the race detector this takes too long and shows nothing.
func TestMutants(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	tests := newSuite(t)
	for _, family := range []struct {
		name    string
		mutants []mutant
		tries   []exploration // one after the other, until one kills
	}{
		{"mutex", mutexMutants(), []exploration{
			trial{mutexes, 2, 1, 1, false, 5}.exploration(l),
			trial{mutexes, 3, 0, 1, false, 5}.exploration(l),
			trial{rules{mutex{}, uncounted}, 2, 1, 1, false, 5}.exploration(l),
			trial{rules{mutex{}, forbidden}, 2, 0, 1, false, 5}.exploration(l),
			trial{mutexes, 2, 2, 1, true, 4}.exploration(l),
			trial{mutexes, 2, 2, 1, false, 7}.exploration(l),
		}},
		{"owned", ownedMutants(), []exploration{
			trial{rwLocks, 2, 1, 1, false, 4}.exploration(l),
			trial{rwOwners, 3, 0, 1, false, 4}.exploration(l),
			trial{owners, 3, 1, 1, false, 5}.exploration(l),
			trial{rwLocks, 3, 0, 1, false, 5}.exploration(l),
			trial{rwOwners, 3, 0, 1, false, 6}.exploration(l),
			trial{rwLocks, 2, 1, 1, false, 6}.exploration(l),
		}},
		{"ticks", tickMutants(), []exploration{
			tickTrial{tickRules{2, false, false}, 2, 1, 1, 5}.exploration(l),
			tickTrial{tickRules{1, false, false}, 2, 1, 1, 5}.exploration(l),
			tickTrial{tickRules{2, false, true}, 2, 0, 0, 5}.exploration(l),
			tickTrial{tickRules{2, true, false}, 2, 1, 1, 5}.exploration(l),
			tickTrial{tickRules{2, false, false}, 2, 2, 1, 6}.exploration(l),
		}},
		{"jobs", jobMutants(), nil},
		{"leaders", leaderMutants(), nil},
	} {
		var killed, killedByTests, explored atomic.Int64
		t.Run(family.name, func(t *testing.T) {
			// A trial that fails by itself would kill everything.
			for i, try := range family.tries {
				t.Run(fmt.Sprintf("trial %d without a mutant", i), func(t *testing.T) {
					t.Parallel()
					if f := try(t, nil); f.broken != "" {
						t.Errorf("the scripts as they are break a promise: %s", f.broken)
					}
				})
			}
			for _, m := range family.mutants {
				m.edit = spelled(m.edit)
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					if m.by == "" || os.Getenv("NOONLOCK_EXPLORE_ALL") != "" {
						states := 0
						for _, try := range family.tries {
							f := try(t, []edit{m.edit})
							states += f.states
							if f.broken != "" {
								killed.Add(1)
								explored.Add(int64(states))
								first, _, _ := strings.Cut(f.broken, "\n")
								t.Logf("killed after %d states: %s", states, first)
								return
							}
						}
						if m.by == "" {
							t.Fatalf("nothing notices it in %d states", states)
						}
						t.Logf("not noticed in %d states", states)
					}
					noticed, err := tests.kills(m.by, m.edit)
					if err != nil {
						t.Fatal(err)
					}
					if !noticed {
						t.Fatalf("%s does not notice it", m.by)
					}
					killedByTests.Add(1)
				})
			}
		})
		if killed.Load()+killedByTests.Load() == 0 {
			continue // they were not asked for
		}
		servers.Count(t, "%s: of %d mutants %d were killed by the exploration, within %d states in all, and %d by the tests that hold their guards",
			family.name, len(family.mutants), killed.Load(), explored.Load(), killedByTests.Load())
	}
}

// spelled is an edit whose conditions are not constant: miniredis's Lua miscompiles some
// branches under a constant, so that it would be that which is noticed.
func spelled(e edit) edit {
	e.new = strings.NewReplacer("if false then", "if not redis then", "if true then", "if redis then").Replace(e.new)
	return e
}

// A mutant that is no Lua would be noticed by everything.
func TestEveryMutantLoads(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: servers.Redis(t).Addr()})
	defer rdb.Close()
	for _, m := range slices.Concat(mutexMutants(), ownedMutants(), tickMutants(), jobMutants(), leaderMutants()) {
		e := spelled(m.edit)
		loaded := 0
		for name, text := range l.files {
			part, isPart := strings.CutPrefix(e.file, "part_")
			includes := isPart && strings.Contains(text, "\n--@include "+part+"\n")
			if name != e.file && !includes || strings.HasPrefix(name, "part_") {
				continue
			}
			loaded++
			s, err := l.load(name, []edit{e})
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			} else if err := rdb.ScriptLoad(t.Context(), s.source).Err(); err != nil {
				t.Errorf("%s: %s: %v", m.name, name, err)
			}
		}
		if loaded == 0 {
			t.Errorf("%s: no script has %s.lua", m.name, e.file)
		}
	}
}

// guard is what a line of a script begins with that decides something.
var guard = regexp.MustCompile(`\b(if|elseif|and|or|not|while|math\.max|math\.min|pcall)\b`)

// Each line of a script that decides something is in a mutant.
func TestEveryGuardHasAMutant(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	touched := map[string]map[int]bool{}
	for _, m := range slices.Concat(mutexMutants(), ownedMutants(), tickMutants(), jobMutants(), leaderMutants()) {
		e := m.edit
		before, _, found := strings.Cut(l.files[e.file], e.old)
		if n := strings.Count(l.files[e.file], e.old); !found || n != 1 {
			t.Errorf("%s: %s.lua has %d places of %q, want 1", m.name, e.file, n, e.old)
			continue
		}
		// What old and new share is only there to find the place.
		begin, end := 0, len(e.old)
		for begin < end && begin < len(e.new) && e.old[begin] == e.new[begin] {
			begin++
		}
		for rest := len(e.new); begin < end && begin < rest && e.old[end-1] == e.new[rest-1]; rest-- {
			end--
		}
		changed := strings.TrimRight(e.old[begin:end], "\n")
		first := strings.Count(before+e.old[:begin], "\n")
		if touched[e.file] == nil {
			touched[e.file] = map[int]bool{}
		}
		for i := range strings.Count(changed, "\n") + 1 {
			touched[e.file][first+i] = true
		}
	}
	guards := 0
	for file, text := range l.files {
		for i, line := range strings.Split(text, "\n") {
			code, _, _ := strings.Cut(line, "--")
			if !guard.MatchString(code) {
				continue
			}
			guards++
			if !touched[file][i] {
				t.Errorf("%s.lua:%d: no mutant of %q", file, i+1, strings.TrimSpace(line))
			}
		}
	}
	t.Logf("%d lines decide something", guards)
}
