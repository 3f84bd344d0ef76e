//go:build !race

package explorer

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

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

// A guard that could be removed without anything here noticing it would be of no
// use, or this explorer would not be. With NOONLOCK_EXPLORE_ALL=1 those are
// explored, too, that are held by other tests. Under the race detector this takes
// too long and shows nothing.
func TestMutants(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
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
	} {
		var killed, kept, explored atomic.Int64
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
				t.Run(m.name, func(t *testing.T) {
					t.Parallel()
					if m.elsewhere != "" && os.Getenv("NOONLOCK_EXPLORE_ALL") == "" {
						kept.Add(1)
						fits(t, l, m.edit)
						t.Logf("not explored: %s", m.elsewhere)
						return
					}
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
					if m.elsewhere == "" {
						t.Errorf("nothing notices it in %d states", states)
					} else {
						kept.Add(1)
						t.Logf("not noticed in %d states: %s", states, m.elsewhere)
					}
				})
			}
		})
		if killed.Load()+kept.Load() == 0 {
			continue // they were not asked for
		}
		servers.Count(t, "%s: %d of %d mutants killed, within %d states in all; %d are not wanted to be: the table says why",
			family.name, killed.Load(), len(family.mutants), explored.Load(), kept.Load())
	}
}

// fits: an edit that is not explored must fit its file all the same.
func fits(tb testing.TB, l *library, e edit) {
	tb.Helper()
	if n := strings.Count(l.files[e.file], e.old); n != 1 {
		tb.Errorf("%s.lua has %d places of %q, want 1", cmp.Or(e.file, "no file"), n, e.old)
	}
}
