package explorer

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/internal/servers"
)

// deep reports whether the explorations have their full depth: with the hunt for mutants, which make
// nightly always runs. Otherwise the scripts are as they were then, and two steps less are explored.
func deep() bool { return os.Getenv("NOONLOCK_MUTANTS") != "" }

// deeper is the number of steps beyond the full depth, from the environment.
func deeper(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("NOONLOCK_EXPLORE_DEEPER")
	switch {
	case text == "" && deep():
		return 0
	case text == "":
		return -2
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("NOONLOCK_EXPLORE_DEEPER is %q, want a number of steps", text)
	}
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

func (tr trial) atlas() *atlas { return newAtlas(tr.rules, tr.derive) }

func (tr trial) model(tb testing.TB, l *library, a *atlas, edits []edit, workers int) *lockModel {
	tb.Helper()
	m := &lockModel{
		rules: tr.rules, atlas: a, processes: tr.processes, faults: tr.faults, deaths: tr.deaths, loses: tr.loses,
		ends: map[lockState]uint8{}, servers: newServers(tb, workers),
	}
	names := tr.kind.scripts()
	for i, at := range []*script{&m.acquire, &m.renew, &m.leave, &m.down} {
		if names[i] == "" {
			continue
		}
		var err error
		if *at, err = l.load(names[i], edits); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

// A tickTrial is one exploration of a ledger.
type tickTrial struct {
	tickRules
	processes int
	faults    uint8
	deaths    uint8
	depth     int
}

func (tr tickTrial) atlas() *atlas { return newAtlas(tr.tickRules, tr.derive) }

func (tr tickTrial) model(tb testing.TB, l *library, a *atlas, edits []edit, workers int) *tickModel {
	tb.Helper()
	m := &tickModel{
		tickRules: tr.tickRules, atlas: a, processes: tr.processes, faults: tr.faults, deaths: tr.deaths,
		scripts: map[string]script{}, ends: map[tickState]uint8{}, servers: newServers(tb, workers),
	}
	for op := tickClaim; op <= tickResume; op++ {
		name := m.scriptOf(op)
		s, err := l.load(name, edits)
		if err != nil {
			tb.Fatal(err)
		}
		m.scripts[name] = s
	}
	return m
}

func newServers(tb testing.TB, n int) []*redisServer {
	tb.Helper()
	var all []*redisServer
	for range n {
		s, err := newServer()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(s.close)
		all = append(all, s)
	}
	return all
}

// Two processes may have two faults on a path. Three processes may have fewer, since there
// are more combinations.
var (
	apart    = [3]int{1, 2, 3}
	reentry  = [3]int{1, 1, 2} // A and B have the same owner
	mutexes  = rules{mutex{}, counted}
	rwLocks  = rules{owned{true, apart}, counted}
	rwOwners = rules{owned{true, reentry}, counted}
	writers  = rules{owned{false, reentry}, counted}
)

func TestLocks(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	workers := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		name string
		trial
	}{
		{"Mutex, 2 processes", trial{mutexes, 2, 2, 1, false, 7}},
		{"Mutex, 3 processes", trial{mutexes, 3, 1, 1, false, 6}},
		{"Mutex, 2 processes, PUBLISH does not count", trial{rules{mutex{}, uncounted}, 2, 2, 1, false, 6}},
		{"Mutex, 2 processes, PUBLISH is forbidden", trial{rules{mutex{}, forbidden}, 2, 1, 1, false, 6}},
		{"Mutex, 2 processes, the counter of tokens is lost", trial{mutexes, 2, 2, 1, true, 6}},
		{"RWMutex, 2 processes", trial{rwLocks, 2, 2, 1, false, 6}},
		{"RWMutex, 3 processes", trial{rwLocks, 3, 1, 1, false, 5}},
		{"RWMutex, 3 processes, 2 of one owner", trial{rwOwners, 3, 1, 1, false, 5}},
		{"ReentrantMutex, 3 processes, 2 of one owner", trial{writers, 3, 1, 1, false, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := c.atlas()
			m := c.model(t, l, a, nil, workers)
			report(t, search(m, c.depth+deeper(t), 0, workers), a, c.faults, c.deaths, m.worst)
		})
	}
}

func TestTicks(t *testing.T) {
	l, err := newLibrary()
	if err != nil {
		t.Fatal(err)
	}
	workers := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		name string
		tickTrial
	}{
		{"2 replicas, 2 attempts", tickTrial{tickRules{2, false, false}, 2, 2, 1, 6}},
		{"2 replicas, at most once", tickTrial{tickRules{1, false, false}, 2, 2, 1, 6}},
		{"2 replicas, runs may overlap", tickTrial{tickRules{2, true, false}, 2, 1, 1, 6}},
		{"2 replicas, one of another definition", tickTrial{tickRules{2, false, true}, 2, 1, 0, 6}},
		{"3 replicas, 2 attempts", tickTrial{tickRules{2, false, false}, 3, 1, 1, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := c.atlas()
			m := c.model(t, l, a, nil, workers)
			report(t, search(m, c.depth+deeper(t), 0, workers), a, c.faults, c.deaths, m.worst)
		})
	}
}

// report prints the size of an exploration, and fails if a promise was broken.
func report(t *testing.T, f found, a *atlas, faults, deaths, worst uint8) {
	t.Helper()
	worlds, runs := a.size()
	if f.broken != "" {
		t.Errorf("%v", f)
		return
	}
	servers.Count(t, "%v, with up to %d faults and %d deaths; %d contents of the keys, %d runs of scripts; without more faults all were served after %d s",
		f, faults, deaths, worlds, runs, worst)
	t.Log(fmt.Sprint("new states by depth: ", f.atDepth, ", in ", f.took))
}
