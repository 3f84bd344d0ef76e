// Package explorer runs the real scripts, as they are sent, in every order of events that a few
// processes and faults allow, and checks the promises in each state. It has tests only.
//
// There are two kinds of explorations. Locks have a model of their clients, whose states
// can be compared, so that each state is visited once. Jobs have the real Runners, which are executed
// again and again, each time with other events.
//
// # What is explored of locks
//
// A state consists of the server's keys, the knowledge of each client, and the requests in
// flight. From a state there is a step for every possible next event: a client starts an attempt
// (try or join), looks, renews, releases, downgrades, aborts, or dies; time passes; a request arrives late; a client receives a grant that it no longer needs.
//
// Faults are also steps, up to a maximum number on each path:
//
//   - a request is lost
//   - an answer is lost, so the request is repeated
//   - a request is slow: its sender stops waiting, and it arrives at any later time, even after
//     the sender's death
//   - an answer is slow, so little or no validity of the lease is left
//   - a renewal or a release is lost
//   - the background release of an attempt stops
//   - the server loses the counter of tokens
//
// The search is breadth first and visits each state once, so a broken promise is shown with a
// minimal number of steps. The depths are in explorer_test.go. All states within them are
// visited. `make test` explores two steps less; the full depth is that of the hunt for mutants and of
// `make nightly`. NOONLOCK_EXPLORE_DEEPER=1 explores one step further, and so on; each step means
// about three times as many states.
//
// # What is explored of jobs
//
// A path is one execution of two or three real Runners, each with a Client and a network of its own, in a
// bubble with the virtual time of testing/synctest. A path without events shows the requests of its first
// seconds. For each of these requests, and for each happening of runs_test.go, there is another path
// where this happens: the request or its answer is lost, late or repeated, the replica is cut off or shut down, or
// the job is paused. `make nightly` does the same with all pairs of events, for two replicas.
//
// # What is checked
//
// The promises are in watch_test.go and promises_test.go for locks, and in runs_test.go for jobs.
// In short: nobody holds what another one holds, tokens grow, a script changes only the hold of its caller,
// every key has a TTL, no tick ends twice or has more attempts than allowed, and, without further faults,
// every live waiter is served and every tick ends. Without one of the rules of the scripts of jobs, one of the
// promises is broken (TestRunsNeedTheirRules).
//
// # What is left out of the models, and why
//
// The rules of a quorum have a simulation in internal/quorum, its scripts have tables in lockcore, and test/chaos
// loses the data of its servers.
//
// Time advances in steps of a second, and TTLs are one or two seconds. Scripts only compare
// times, so only their order matters. A margin that is milliseconds too small is not
// detected; tables in lockcore test that arithmetic.
//
// A request without a fault is answered in the same step. Actions of others between its arrival
// and its answer affect only the remaining time, which the slow answer covers.
//
// Messages are not delivered. A message only makes a waiter look, and a waiter may look at any
// time. Tests in lockcore check that messages arrive, and that they are few.
//
// Contents of the keys that no script can distinguish count as equal: of times in the past, only
// the order is kept. So a script runs once per content and caller, however many states have that
// content. It runs only in miniredis; lockcore's tests also run the scripts on Redis.
//
// The clients of locks are a model of lockcore's clients, because those have goroutines and timers: their state can
// neither be compared nor restored. Comments name the functions that a rule comes
// from. The model is not lockcore's code: the tests in bubbles and the chaos test find
// differences.
//
// # Mutants
//
// TestMutants changes the scripts at one place at a time, and fails
// if a change is not detected. First the tests of
// lockcore run that testdata/killers.txt lists for the file; one of them must fail. If none does,
// the explorations run, and then all tests in bubbles. A test that does not end or cannot run
// detects nothing.
//
// After a change of a script:
//
//	NOONLOCK_MUTANTS=mutex_acquire,part_mutex go test ./test/explorer -run TestMutants
//
// It prints "nothing notices" for each survivor. There are three solutions: write the test that
// detects it, delete the changed code if it has no effect, or list it in testdata/survivors.txt
// below the reason why no test can detect it. Valid reasons are that the mutant is equivalent, or
// affects only speed. A mutant is listed by the text of its line. The test also fails if a listed
// mutant no longer exists, or if the tests of its file detect it.
//
// A log line "noticed by X, which killers.txt does not name" means that this mutant needed a full
// run of half a minute: add X to the line of the file. The order there and a wrong name for a
// file only cost time. A name that is not a test is an error. The tests of a new directory of
// scripts must support NOONLOCK_MUTANT, as TestMain of lockcore does.
package explorer
