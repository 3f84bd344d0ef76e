package explorer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A killer is a test or a set of explorations that may detect a mutant.
type killer struct {
	name string
	// try returns why it fails with a mutant, "" if it does not. If again is set, it must fail twice. If the
	// mutant is empty, the scripts are as they are.
	try func(t *testing.T, m edit, again bool, limit time.Duration) (why string, err error)

	once  sync.Once
	limit time.Duration
	wrong error
}

// sound returns an error if the killer fails without a mutant, so it would detect everything. On a busy machine
// each test takes longer. So how long one may take with a mutant depends on how long it took without.
func (k *killer) sound(t *testing.T) error {
	t.Helper()
	k.once.Do(func() {
		start := time.Now()
		why, err := k.try(t, edit{}, true, 10*leastLimit)
		k.limit = max(leastLimit, 10*time.Since(start))
		if why != "" {
			err = errors.New(why)
		}
		if err != nil {
			k.wrong = fmt.Errorf("without a mutant %s fails: %w", k.name, err)
		}
	})
	return k.wrong
}

// A hunt runs killers against mutants.
type hunt struct {
	suite   *suite
	library *library

	mu      sync.Mutex
	killers map[string]*killer
}

// An exploration is one search for a mutant. It returns the promise that is broken, or "".
type exploration struct {
	scripts []string
	explore func(t *testing.T, edits []edit) string
}

func (tr trial) exploration(l *library) exploration {
	a := newAtlas(tr.rules) // shared by all mutants, since most scripts are equal in them
	return exploration{tr.kind.scripts(), func(t *testing.T, edits []edit) string {
		t.Helper()
		return search(tr.model(t, l, a, edits), tr.depth).broken
	}}
}

func (tr runTrial) exploration(l *library) exploration {
	return exploration{jobScripts, func(t *testing.T, edits []edit) string {
		t.Helper()
		_, broken := tr.explore(t, l, edits)
		return broken
	}}
}

func newHunt(t *testing.T, l *library) *hunt {
	t.Helper()
	h := &hunt{suite: newSuite(t), library: l, killers: map[string]*killer{}}
	// The first explorations detect most mutants with few states.
	h.explore(
		"mutexes",
		trial{mutexes, 2, 1, 1, false, 5}.exploration(l),
		trial{mutexes, 3, 0, 1, false, 5}.exploration(l),
		trial{rules{mutex{}, true}, 2, 0, 1, false, 5}.exploration(l),
		trial{mutexes, 2, 2, 1, true, 4}.exploration(l),
		trial{mutexes, 2, 2, 1, false, 7}.exploration(l),
	)
	h.explore(
		"owned",
		trial{rwLocks, 2, 1, 1, false, 4}.exploration(l),
		trial{rwOwners, 3, 0, 1, false, 4}.exploration(l),
		trial{writers, 3, 1, 1, false, 5}.exploration(l),
		trial{rwLocks, 3, 0, 1, false, 5}.exploration(l),
		trial{rwOwners, 3, 0, 1, false, 6}.exploration(l),
		trial{rwLocks, 2, 1, 1, false, 6}.exploration(l),
	)
	h.explore("slots", trial{twoSlots, 3, 0, 1, false, 4}.exploration(l), trial{twoSlots, 3, 1, 1, true, 4}.exploration(l))
	h.explore("runs", twice.exploration(l), once.exploration(l))
	return h
}

func (h *hunt) explore(name string, tries ...exploration) {
	name = "explore:" + name
	h.killers[name] = &killer{name: name, try: func(t *testing.T, m edit, _ bool, _ time.Duration) (broken string, _ error) {
		t.Helper()
		for _, try := range tries {
			if broken == "" && (m.text == "" || h.library.changes(try.scripts, []edit{m})) {
				broken = try.explore(t, []edit{m})
			}
		}
		return broken, nil
	}}
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
// the next mutants, too. A slow one would delay all of them.
func (h *hunt) hunt(t *testing.T, m mutant, killers []*killer, again bool) (by, why string, err error) {
	t.Helper()
	for i, k := range killers {
		start := time.Now()
		why, err := k.try(t, m.edit, again, k.limit)
		if errors.Is(err, errTimedOut) {
			t.Logf("%s says nothing of %v: %v", k.name, m, err)
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
			return k.name, why, nil
		}
	}
	return "", "", nil
}

// anything is hunt with all explorations, and with all tests in bubbles of the packages that use
// the file.
func (h *hunt) anything(t *testing.T, m mutant) (string, error) {
	t.Helper()
	explorations, err := h.named([]string{"explore:mutexes", "explore:owned", "explore:slots", "explore:runs"})
	must(t, err)
	by, _, err := h.hunt(t, m, explorations, false)
	if err != nil {
		return "", err
	}
	for _, room := range h.library.rooms[m.file] {
		if by != "" {
			break
		}
		out, failed, err := h.suite.run(room, everything, m.edit, 10*leastLimit)
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
	t.Logf("%v: noticed by %s, which killers.txt does not name", m, by)
	return by, nil
}
