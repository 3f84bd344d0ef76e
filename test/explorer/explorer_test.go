package explorer

import (
	"cmp"
	"os"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

// deep reports whether the explorations have their full depth: with the hunt for mutants, which make
// nightly always runs. Otherwise the scripts are as they were then, and two steps less are explored.
func deep() bool { return os.Getenv("NOONLOCK_MUTANTS") != "" }

// deeper is the number of steps beyond the full depth.
func deeper(tb testing.TB) int {
	tb.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("NOONLOCK_EXPLORE_DEEPER"), map[bool]string{true: "0", false: "-2"}[deep()]))
	must(tb, err)
	return n
}

// A trial is one exploration of a lock.
type trial struct {
	rules
	processes int
	faults    uint8 // maximum on one path
	deaths    uint8
	loses     bool // the server may lose the counter of tokens
	depth     int
}

func (tr trial) model(tb testing.TB, l *library, a *atlas, edits []edit) *lockModel {
	tb.Helper()
	m := &lockModel{trial: tr, atlas: a, ends: map[lockState]uint8{}, server: newServer(tb)}
	for i, name := range tr.kind.scripts() {
		m.scripts[i] = l.load(name, edits)
	}
	return m
}

// Two processes may have two faults on a path. Three processes may have fewer, since there
// are more combinations.
var (
	apart    = [3]int{1, 2, 3}
	reentry  = [3]int{1, 1, 2} // A and B have the same owner
	mutexes  = rules{mutex{}, false}
	rwLocks  = rules{owned{true, apart}, false}
	rwOwners = rules{owned{true, reentry}, false}
	writers  = rules{owned{false, reentry}, false}
	twoSlots = rules{semaphore{}, false}
)

func TestLocks(t *testing.T) {
	l := newLibrary(t)
	for _, c := range []struct {
		name string
		trial
	}{
		{"Mutex, 2 processes", trial{mutexes, 2, 2, 1, false, 7}},
		{"Mutex, 3 processes", trial{mutexes, 3, 1, 1, false, 6}},
		{"Mutex, 2 processes, PUBLISH is forbidden", trial{rules{mutex{}, true}, 2, 1, 1, false, 6}},
		{"Mutex, 2 processes, the counter of tokens is lost", trial{mutexes, 2, 2, 1, true, 6}},
		{"RWMutex, 2 processes", trial{rwLocks, 2, 2, 1, false, 6}},
		{"RWMutex, 3 processes", trial{rwLocks, 3, 1, 1, false, 5}},
		{"RWMutex, 3 processes, 2 of one owner", trial{rwOwners, 3, 1, 1, false, 5}},
		{"ReentrantMutex, 3 processes, 2 of one owner", trial{writers, 3, 1, 1, false, 6}},
		{"Semaphore, 3 processes", trial{twoSlots, 3, 1, 1, false, 6}},
		{"Semaphore, 3 processes, the counter of tokens and the size are lost", trial{twoSlots, 3, 1, 1, true, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newAtlas(c.rules)
			m := c.model(t, l, a, nil)
			f := search(m, c.depth+deeper(t))
			if f.broken != "" {
				t.Fatal(f)
			}
			worlds, runs := a.size()
			servers.Count(t, "%v, with up to %d faults and %d deaths; %d contents of the keys, %d runs of scripts; without more faults all were served after %d s",
				f, c.faults, c.deaths, worlds, runs, m.worst)
		})
	}
}
