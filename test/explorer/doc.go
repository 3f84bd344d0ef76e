// Package explorer drives the real scripts of lockcore, as lockcore sends them,
// through every order of events that a few processes and faults allow, and holds
// each state against what is promised. It has tests only.
//
// # What is explored
//
// A state is the content of the server's keys, what each client knows, and the
// requests on their way. From a state there is a step for everything that can
// happen next: a client starts an attempt (try or join), looks, renews, releases,
// downgrades, claims, completes, abandons, gives up, dies; time passes; a request
// arrives late; a client hears of a grant that it does not want any more. Faults are
// among the steps, up to a number on each path: a request is lost; an answer is
// lost, so that the request is repeated; a request is slow, its sender ceases to
// wait, and it arrives at any time after, even after the sender's death; an answer is
// slow, so that of the lease little or nothing is left; a living process is not heard
// of by PUBLISH; a renewal or a release is lost; whoever gives an attempt back behind
// stops trying; the server loses the counter of tokens; a job is paused. Of a dead
// process the server may know that nobody listens, or not.
//
// States are visited breadth first, each once, so that what breaks a promise is shown
// with as few steps as any. The depths are in explorer_test.go; all states within
// them are visited. NOONLOCK_EXPLORE_DEEPER=1 explores one step further, and so on:
// that makes about three times as many states.
//
// # What is held against it
//
// For locks: no two believe to hold that must not; who believes to hold is the
// holder at the server, for at least as long; a script takes, shortens or lengthens
// nobody's hold but the caller's; tokens grow with every grant, and those of one owner
// stay as documented; a grant that was not confirmed ends after a second; no hold is
// longer than its TTL and no key without one; the lock's key ends with its last
// holder; who was given up never holds; nobody is passed by who came later, as long as
// it lives and can be reached; who was not heard of for long is not granted the lock;
// who looks in vain leaves no lock behind that the first in line could have. And from
// every state, if no more faults come, everybody who lives and waits is served within
// a bound of looks, one a second, without any message.
//
// For ticks: no two valid runs of one tick, or of one job where runs may not overlap;
// one accepted completion per tick at most; a tick that has ended is never given
// again; every tick up to the newest accounted one is open or has ended, and not both;
// earlier ticks first; tokens grow with every takeover; work begins no more often than
// there are attempts; each refusal is true. And from every state, if no more faults
// come, all ticks come to an end.
//
// # What is left out, and why that does little harm
//
// Time goes in steps of a second, and TTLs are of one or two seconds. Scripts compare
// times only, so what matters is which of two comes first; steps of 1, 4 and 7 (for
// ticks: 1) lead to ends of leases, grants and places in line. A margin that is too
// small by milliseconds is not seen here; tables in lockcore hold that arithmetic.
//
// A request that nothing goes wrong with is answered in the same step. What others do
// between its arrival and its answer changes nothing but what time is left, and that
// the slow answer has.
//
// Messages are not delivered. A waiter may look at any time, which is all that a
// message can make it do, and the runs without further faults show that none is
// needed. That messages come, and few, is held by lockcore's tests of what scripts cost.
//
// Each process has two attempts, whose names are used again when nothing is left of
// the one before, and one task behind. Two requests of all may be late at once.
//
// Contents of the keys that differ in nothing a script can tell are one: times that
// are over keep only their order. So a script is run once for each content and
// caller, however many states have that content. It runs in miniredis alone;
// lockcore's tests run the scripts on Redis, too.
//
// The clients are a model of lockcore's, whose rules name the functions they
// are taken from. It is not lockcore's code: what the code does otherwise is found by the
// tests in bubbles and by the chaos test.
//
// # Mutants
//
// TestMutants (not under the race detector) changes the scripts, one place at a time, and
// wants each change to be noticed. Package luamutant makes the mutants. Each is held first
// against the tests of lockcore that testdata/killers.txt names for its file; they run on the
// changed script and one must fail. A mutant that none of them notices is held against the
// explorations and then against all tests in bubbles. A test that does not end, or cannot
// run, notices nothing.
//
// After a change of a script:
//
//	go test ./test/explorer -run 'TestMutants/of/mutex_acquire$'
//
// prints "nothing notices" for each survivor. There are three ways to mend that. Write the
// test that notices it. Delete what it changed, if nobody can notice it. Or list it in
// testdata/survivors.txt, below the reason why no test can notice it: it behaves the same, or
// serves speed alone. A mutant is listed by the text of its line, so that a listed one that
// no longer exists, or is noticed by the tests of its file, fails the test, too.
//
// A log line "noticed by X, which killers.txt does not name" means that this mutant cost
// a run of everything, half a minute: add X to the line of the file. The order there, and a
// wrong name for a file, cost time only. A name of no test is an error. A new folder of
// scripts needs its tests to take NOONLOCK_MUTANT, as TestMain of lockcore does.
package explorer
