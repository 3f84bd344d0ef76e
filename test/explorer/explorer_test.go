// Package explorer runs the real scripts, as they are sent, in every order of events that a few
// processes and faults allow, and checks the promises in each state. It has tests only.
//
// # What is explored
//
// Locks have a model of their clients, because the states of real clients, with goroutines and timers, can be neither
// compared nor restored. A state consists of the server's keys, the knowledge of each client, and the requests in
// flight. From a state there is a step for every possible next event: a client starts an attempt, looks, renews,
// releases, downgrades, aborts, or dies; time passes; a request arrives late. Up to a maximum number on each path,
// steps are faults: a request or an answer is lost or slow, a renewal or a release is lost, the background release of
// an attempt stops, or the server loses the counter of tokens.
//
// The search is breadth first and visits each state once, so a broken promise is shown with a
// minimal number of steps. The depths are in explorer_test.go. `make test` explores two steps less than
// `make nightly` and the hunt for mutants. NOONLOCK_EXPLORE_DEEPER=1 explores one step further, and so on; each step
// means about three times as many states.
//
// Jobs have two or three real Runners, each with a Client and a network of its own, in a bubble of virtual time. A path
// is one execution of them. A path without events shows the requests of its first seconds. For each of these requests,
// and for each happening of runs_test.go, there is another path where this happens. `make nightly` does the same with
// all pairs of events, for two replicas.
//
// The promises are in watch_test.go and promises_test.go for locks, and in runs_test.go for jobs.
//
// # What is left out of the models, and why
//
// The rules of a quorum have tables in internal/quorum, its scripts have plays in lockcore, and test/chaos loses the
// data of its servers.
//
// Time advances in steps of a second, and TTLs are one or two seconds. Scripts only compare
// times, so only their order matters. Tables in lockcore test margins of milliseconds.
//
// A request without a fault is answered in the same step. Actions of others between its arrival
// and its answer affect only the remaining time, which the slow answer covers.
//
// Messages are not delivered. A message only makes a waiter look, and a waiter may look at any
// time. Tests in lockcore check that messages arrive, and that they are few.
//
// Contents of the keys that no script can distinguish count as equal: of times in the past, only
// the order is kept. So a script runs once per content and caller. It runs only in miniredis; lockcore's tests also run
// the scripts on Redis.
//
// # Mutants
//
// TestMutants changes the scripts at one place at a time, and fails if a change is not detected. First the tests of
// lockcore run that testdata/killers.txt lists for the file; one of them must fail. If none does,
// the explorations run, and then all tests in bubbles. A test that does not end or cannot run detects nothing.
//
// After a change of a script:
//
//	NOONLOCK_MUTANTS=mutex_acquire,part_mutex go test ./test/explorer -run TestMutants
//
// It prints "nothing notices" for each survivor. There are three solutions: write the test that
// detects it, delete the changed code if it has no effect, or list it by the text of its line in testdata/survivors.txt
// below the reason why no test can detect it: the mutant is equivalent, or affects only speed.
//
// A log line "noticed by X, which killers.txt does not name" means that this mutant needed a full
// run of half a minute: add X to the line of the file. The tests of a new directory of
// scripts must support NOONLOCK_MUTANT, as TestMain of lockcore does.
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
