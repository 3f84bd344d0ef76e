package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, election.ScriptFiles, election.UseScripts))
}

// Short names for all tests.
const patience = testenv.Patience

var (
	must   = testenv.Must
	mustIs = testenv.MustIs
)

// The times of elections in these tests; short because of the real server.
const (
	leaseDuration = 1500 * time.Millisecond
	renewDeadline = 1000 * time.Millisecond
	retryPeriod   = 200 * time.Millisecond
)

// An env is the server that a test runs on.
type env struct {
	*testenv.Env

	mu       sync.Mutex
	leading  int      // replicas whose work runs
	greatest uint64   // token
	wrong    []string // what no election without a loss allows
}

// begins records that a replica leads, until ends is called.
func (e *env) begins(who string, token uint64) (ends func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading++; e.leading > 1 || token <= e.greatest {
		e.wrong = append(e.wrong, fmt.Sprintf("%s leads with token %d after %d, as one of %d", who, token, e.greatest, e.leading))
	}
	e.greatest = max(e.greatest, token)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.leading--
	}
}

// oneAtATime asserts that no two have led at the same time, and that each token was greater than the one before.
func (e *env) oneAtATime() {
	e.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.greatest == 0 || len(e.wrong) > 0 {
		e.Errorf("the greatest token is %d: %v", e.greatest, e.wrong)
	}
}

// onBoth runs a test in a bubble and on a real server.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.InBubble(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

func realEnv(t *testing.T) *env {
	t.Helper()
	return &env{Env: testenv.OnServer(t)}
}

// A replica is an elector with a record of its calls.
type replica struct {
	e      *env
	le     *election.LeaderElector
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	// work is the body of OnStartedLeading, after it was recorded; nil: wait for the
	// context. Set it before run.
	work func(ctx context.Context)

	mu      sync.Mutex
	terms   []uint64 // tokens
	causes  []error  // of the contexts, when the work was over
	stops   int
	leaders []string
	ctx     context.Context // of the newest OnStartedLeading
	working bool
}

const electionName = "board"

func quick() election.Config {
	return election.Config{
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
	}
}

// idle are the callbacks of a leader that only waits for its end.
var idle = election.Callbacks{OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {}}

// quick returns short durations in a bubble. On a real server, a lease survives a stall of a busy
// machine.
func (e *env) quick() election.Config {
	if e.Bubble == nil {
		return calm()
	}
	return quick()
}

// replica returns a replica that is not running yet.
func (e *env) replica(c *lockcore.Client, cfg election.Config) *replica {
	e.Helper()
	r := &replica{e: e, done: make(chan struct{})}
	le, err := election.NewLeaderElector(c, electionName, election.Callbacks{
		OnStartedLeading: r.started, OnStoppedLeading: r.stopped, OnNewLeader: r.newLeader,
	}, cfg)
	must(e, err)
	r.le = le
	return r
}

// run starts Run, which is stopped at the end of the test.
func (r *replica) run() *replica {
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	r.e.Cleanup(func() { r.stop() })
	go func() {
		defer close(r.done)
		r.err = r.le.Run(ctx)
	}()
	return r
}

var errStopped = errors.New("the test stops it")

// stop ends Run and waits for it.
func (r *replica) stop() {
	r.e.Helper()
	r.cancel(errStopped)
	r.wait()
}

func (r *replica) wait() {
	r.e.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		r.e.Error("Run did not return")
	}
}

func (r *replica) started(ctx context.Context) {
	l := lockcore.FromContext(ctx)
	if l.Name() != "election/"+electionName || ctx.Err() == nil && !r.le.IsLeader() && ctx.Err() == nil {
		r.e.Errorf("%s: OnStartedLeading without its lease, or it does not lead", r.le.Identity())
	}
	r.mu.Lock()
	if r.working {
		r.e.Errorf("%s: OnStartedLeading while the last one has not returned", r.le.Identity())
	}
	r.working = true
	r.terms = append(r.terms, l.Token())
	r.ctx = ctx
	work := r.work
	r.mu.Unlock()
	ends := r.e.begins(r.le.Identity(), l.Token())
	defer func() {
		ends()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.working = false
		r.causes = append(r.causes, context.Cause(ctx))
	}()
	if work != nil {
		work(ctx)
		return
	}
	<-ctx.Done()
}

func (r *replica) stopped() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops++
	if r.working || r.stops != len(r.terms) {
		r.e.Errorf("%s: OnStoppedLeading %d after %d starts, at work %v", r.le.Identity(), r.stops, len(r.terms), r.working)
	}
	if r.le.IsLeader() {
		r.e.Errorf("%s: IsLeader in OnStoppedLeading", r.le.Identity())
	}
}

func (r *replica) newLeader(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.leaders); identity == "" || n > 0 && r.leaders[n-1] == identity {
		r.e.Errorf("%s: OnNewLeader(%q) after %q", r.le.Identity(), identity, r.leaders)
	}
	r.leaders = append(r.leaders, identity)
}

// term returns the token of the newest term that it has led for, and the number of its terms.
func (r *replica) term() (token uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.terms) == 0 {
		return 0, 0
	}
	return r.terms[len(r.terms)-1], len(r.terms)
}

func (r *replica) leaderNames() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.leaders, " ")
}

// ended returns the cause of the nth context at the end of the work.
func (r *replica) ended(n int) error {
	r.e.Helper()
	r.e.Until(fmt.Sprintf("%s's lead %d is over", r.le.Identity(), n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.causes) >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.causes[n-1]
}

// leads waits until it leads for the nth time, and returns the token.
func (r *replica) leads(n int) uint64 {
	r.e.Helper()
	r.e.Until(fmt.Sprintf("%s leads for the %dth time", r.le.Identity(), n), func() bool {
		_, have := r.term()
		return have >= n
	})
	token, _ := r.term()
	return token
}

// recorded waits until it leads for the nth time and the record says so.
func (r *replica) recorded(n int) (token uint64) {
	r.e.Helper()
	token = r.leads(n)
	r.e.Until("the record has the term", func() bool { return r.e.record()["token"] == strconv.FormatUint(token, 10) })
	return token
}

func (r *replica) never() {
	r.e.Helper()
	if token, n := r.term(); n != 0 {
		r.e.Errorf("%s has led %d times, last with token %d", r.le.Identity(), n, token)
	}
}

// queued waits until n candidates are queued.
func (e *env) queued(n int64) {
	e.Helper()
	e.Until(fmt.Sprintf("%d are queued", n), func() bool {
		have := testenv.Call(e.Raw.ZCard(e.Context(), key("queue")).Result()).Must(e)
		return have == n
	})
}

// queueUp runs replicas so that the first one leads and the others are queued in that order.
func (e *env) queueUp(replicas ...*replica) {
	e.Helper()
	for i, r := range replicas {
		r.run()
		if i == 0 {
			r.recorded(1)
		} else {
			e.queued(int64(i))
		}
	}
	e.WaitIdle()
}

func key(part string) string { return "noonlock:{election/" + electionName + "}:" + part }

func (e *env) record() map[string]string {
	e.Helper()
	return testenv.Call(e.Raw.HGetAll(e.Context(), key("leader")).Result()).Must(e)
}

// script matches requests that run a script of elections, or of locks.
func (e *env) script(name string) func([]string) bool {
	e.Helper()
	files := election.ScriptFiles
	if !strings.HasPrefix(name, "leader_") {
		files = lock.LuaFiles
	}
	return testenv.Scripts{Files: files}.Match(e, name)
}
