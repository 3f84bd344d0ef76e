package explorer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A killer is a test or a set of explorations that may detect a mutant.
type killer struct {
	name  string
	sound func(tb testing.TB) error // without a mutant it must not fail; to call before kills
	// kills returns why it fails with a mutant, "" if it does not. If again is set, it must fail twice.
	kills func(tb testing.TB, m edit, again bool) (why string, err error)
}

// A hunt runs killers against mutants.
type hunt struct {
	suite   *suite
	library *library

	mu      sync.Mutex
	killers map[string]*killer
}

// An exploration is one search for a mutant.
type exploration struct {
	scripts []string
	search  func(tb testing.TB, edits []edit) found
}

func (tr trial) exploration(l *library) exploration {
	a := tr.atlas() // shared by all mutants, since most scripts are equal in them
	scripts := tr.kind.scripts()
	return exploration{scripts[:], func(tb testing.TB, edits []edit) found {
		tb.Helper()
		return search(tr.model(tb, l, a, edits, 1), tr.depth, 0, 1)
	}}
}

func (tr tickTrial) exploration(l *library) exploration {
	a := tr.atlas()
	var scripts []string
	for op := tickClaim; op <= tickResume; op++ {
		scripts = append(scripts, (&tickModel{}).scriptOf(op))
	}
	return exploration{scripts, func(tb testing.TB, edits []edit) found {
		tb.Helper()
		return search(tr.model(tb, l, a, edits, 1), tr.depth, 0, 1)
	}}
}

func (tr quorumTrial) exploration(l *library) exploration {
	return exploration{quorumScripts[:], func(tb testing.TB, edits []edit) found {
		tb.Helper()
		return search(tr.model(tb, l, edits, 1, noFlaw), tr.depth, 0, 1)
	}}
}

func newHunt(tb testing.TB, l *library) *hunt {
	tb.Helper()
	h := &hunt{suite: newSuite(tb), library: l, killers: map[string]*killer{}}
	// The first explorations detect most mutants with few states.
	h.explore(l, "mutexes", []exploration{
		trial{mutexes, 2, 1, 1, false, 5}.exploration(l),
		trial{mutexes, 3, 0, 1, false, 5}.exploration(l),
		trial{rules{mutex{}, uncounted}, 2, 1, 1, false, 5}.exploration(l),
		trial{rules{mutex{}, forbidden}, 2, 0, 1, false, 5}.exploration(l),
		trial{mutexes, 2, 2, 1, true, 4}.exploration(l),
		trial{mutexes, 2, 2, 1, false, 7}.exploration(l),
	})
	h.explore(l, "owned", []exploration{
		trial{rwLocks, 2, 1, 1, false, 4}.exploration(l),
		trial{rwOwners, 3, 0, 1, false, 4}.exploration(l),
		trial{writers, 3, 1, 1, false, 5}.exploration(l),
		trial{rwLocks, 3, 0, 1, false, 5}.exploration(l),
		trial{rwOwners, 3, 0, 1, false, 6}.exploration(l),
		trial{rwLocks, 2, 1, 1, false, 6}.exploration(l),
	})
	h.explore(l, "ticks", []exploration{
		tickTrial{tickRules{2, false, false}, 2, 1, 1, 5}.exploration(l),
		tickTrial{tickRules{1, false, false}, 2, 1, 1, 5}.exploration(l),
		tickTrial{tickRules{2, false, true}, 2, 0, 0, 5}.exploration(l),
		tickTrial{tickRules{2, true, false}, 2, 1, 1, 5}.exploration(l),
		tickTrial{tickRules{2, false, false}, 2, 2, 1, 6}.exploration(l),
	})
	h.explore(l, "quorum", []exploration{
		quorumTrial{2, 0, 0, 8}.exploration(l),
		quorumTrial{1, 0, 2, 10}.exploration(l),
	})
	return h
}

func (h *hunt) explore(l *library, name string, tries []exploration) {
	explored := func(tb testing.TB, edits []edit) (string, error) {
		tb.Helper()
		for _, try := range tries {
			if changed, err := l.changes(try.scripts, edits); err != nil || !changed && edits != nil {
				return "", err
			}
			if f := try.search(tb, edits); f.broken != "" {
				return f.broken, nil
			}
		}
		return "", nil
	}
	var sound sync.Once
	var wrong error
	name = "explore:" + name
	h.killers[name] = &killer{
		name: name,
		sound: func(tb testing.TB) error {
			tb.Helper()
			sound.Do(func() {
				var broken string
				if broken, wrong = explored(tb, nil); broken != "" {
					wrong = fmt.Errorf("the scripts as they are break a promise: %s", broken)
				}
			})
			return wrong
		},
		kills: func(tb testing.TB, m edit, _ bool) (string, error) {
			tb.Helper()
			return explored(tb, []edit{m})
		},
	}
}

// named returns the killers with these names.
func (h *hunt) named(names []string) ([]*killer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*killer
	for _, name := range names {
		k := h.killers[name]
		if k == nil && strings.HasPrefix(name, "explore:") {
			return nil, fmt.Errorf("there is no %s", name)
		}
		if k == nil {
			k = h.suite.killer(name)
			h.killers[name] = k
		}
		all = append(all, k)
	}
	return all, nil
}

// hunt returns the name of the killer that detects a mutant and what it says, "" if none does. The
// killer must fail twice if again is set. A fast killer moves to the front, since it often detects
// the next mutants, too. A slow one would delay all of them, and one that did not end moves to the
// back.
func (h *hunt) hunt(tb testing.TB, m mutant, killers []*killer, again bool) (by, why string, err error) {
	tb.Helper()
	var endless []*killer
	for i, k := range killers {
		start := time.Now()
		why, err := k.kills(tb, m.edit, again)
		if errors.Is(err, errTimedOut) {
			tb.Logf("%s says nothing of %v: %v", k.name, m, err)
			endless = append(endless, k)
			continue
		}
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", k.name, err)
		}
		if why != "" {
			if time.Since(start) < time.Second {
				copy(killers[1:i+1], killers[:i])
				killers[0] = k
			}
			slices.SortStableFunc(killers, func(a, b *killer) int {
				return cmp.Compare(slices.Index(endless, a), slices.Index(endless, b))
			})
			return k.name, why, nil
		}
	}
	return "", "", nil
}

// anything is hunt with all explorations, and with all tests in bubbles of the packages that use
// the file.
func (h *hunt) anything(tb testing.TB, m mutant) (string, error) {
	tb.Helper()
	by := ""
	for _, name := range []string{"explore:mutexes", "explore:owned", "explore:ticks"} {
		why, err := h.killers[name].kills(tb, m.edit, false)
		if err != nil {
			return "", err
		}
		if why != "" {
			by = name
			break
		}
	}
	for _, room := range h.library.rooms[m.file] {
		if by != "" {
			break
		}
		out, failed, err := h.suite.run(room, everything, m.edit, 10*h.suite.timeout)
		if err != nil {
			return "", err
		}
		if failed {
			_, by, _ = strings.Cut(out, "--- FAIL: ")
			by, _, _ = strings.Cut(by, " ")
			by = room + "." + strings.TrimSuffix(by, ":")
		}
	}
	if by == "" {
		return "", nil
	}
	tb.Logf("%v: noticed by %s, which killers.txt does not name", m, by)
	return by, nil
}
