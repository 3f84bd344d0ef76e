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
