package election_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // it tells of every connection that a test cuts
	if os.Getenv(roleVariable) != "" {
		os.Exit(playRole())
	}
	os.Exit(m.Run())
}

// patience bounds every wait for something that must happen on a real server.
// Nothing is measured against it.
const patience = 60 * time.Second

// The times of elections in these tests: short for the real server's sake.
const (
	leaseDuration = 1500 * time.Millisecond
	renewDeadline = 1000 * time.Millisecond
	retryPeriod   = 200 * time.Millisecond
)

// An env is a Redis server that a test runs on: miniredis in a bubble of virtual
// time, or a redis-server. The same test functions run on both.
type env struct {
	*testing.T
	bubble  *lockcoretest.Redis  // nil on a real server
	real    *servers.RedisServer // nil in a bubble
	raw     *redis.Client        // past lockcore, to look and to interfere
	start   time.Time
	probes  atomic.Int64
	history *lockcoretest.History
}

// onBoth runs a test in a bubble and on a real server.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	t.Parallel()
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		inBubble(t, test)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(realEnv(t))
	})
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		e := &env{T: t, bubble: r, raw: r.Client(), start: time.Now()}
		e.history = lockcoretest.NewHistory(e.clock)
		test(e)
	})
}

func realEnv(t *testing.T, conf ...string) *env {
	t.Helper()
	s := servers.Redis(t, conf...)
	e := &env{T: t, real: s, start: time.Now()}
	e.history = lockcoretest.NewHistory(e.clock)
	e.raw = redis.NewClient(options(s.Addr()))
	t.Cleanup(func() { e.raw.Close() })
	return e
}

func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (e *env) clock() time.Duration { return time.Since(e.start) }

func (e *env) direct() *redis.Options {
	if e.bubble != nil {
		return e.bubble.Options()
	}
	return options(e.real.Addr())
}

// client makes a Client, closed at the end of the test.
func (e *env) client(identity string) *lockcore.Client {
	e.Helper()
	return e.clientWith(e.direct(), lockcore.Config{Identity: identity})
}

// linked is client with a network of its own.
func (e *env) linked(identity string) (*lockcore.Client, *lockcoretest.Faults) {
	e.Helper()
	return e.linkedWith(lockcore.Config{Identity: identity})
}

func (e *env) linkedWith(cfg lockcore.Config) (*lockcore.Client, *lockcoretest.Faults) {
	e.Helper()
	if e.bubble != nil {
		f := lockcoretest.NewFaults()
		return e.clientWith(e.bubble.OptionsVia(f), cfg), f
	}
	p := lockcoretest.NewProxy(e, e.real.Addr())
	return e.clientWith(options(p.Addr()), cfg), p.Faults()
}

func (e *env) clientWith(opt *redis.Options, cfg lockcore.Config) *lockcore.Client {
	e.Helper()
	if cfg.Clock == nil {
		cfg.Clock = e.clock
	}
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, cfg)
	must(e, err)
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, lockcore.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("Close: %v", err)
		}
		rdb.Close()
	})
	return c
}

// A replica is an elector with a record of what it was called with.
type replica struct {
	e      *env
	le     *election.LeaderElector
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	// work is what OnStartedLeading does after it was noted; nil: wait for the
	// context. Set it before run.
	work func(ctx context.Context)

	mu      sync.Mutex
	terms   []election.Term
	causes  []error // of the contexts, when the work was over
	stops   int
	leaders []string
	ctx     context.Context // of the newest OnStartedLeading
	working bool
}

const electionName = "board"

func quick(identity string) election.Config {
	return election.Config{
		Identity: identity, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
	}
}

// replica makes one that does not run yet.
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
	term, ok := election.TermFrom(ctx)
	if !ok || ctx.Err() == nil && !r.le.IsLeader() && ctx.Err() == nil {
		r.e.Errorf("%s: OnStartedLeading without a term, or it does not lead", r.le.Identity())
	}
	r.mu.Lock()
	if r.working {
		r.e.Errorf("%s: OnStartedLeading while the last one has not returned", r.le.Identity())
	}
	r.working = true
	r.terms = append(r.terms, term)
	r.ctx = ctx
	proc := fmt.Sprintf("%s %p", r.le.Identity(), r)
	work := r.work
	r.mu.Unlock()
	r.e.history.Record(lockcoretest.Event{Proc: proc, Name: electionName, Op: lockcoretest.Acquire, Token: term.Token})
	defer func() {
		r.e.history.Record(lockcoretest.Event{Proc: proc, Name: electionName, Op: lockcoretest.Release, Token: term.Token})
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

// term is the newest term it has led for, and how many there were.
func (r *replica) term() (election.Term, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.terms) == 0 {
		return election.Term{}, 0
	}
	return r.terms[len(r.terms)-1], len(r.terms)
}

func (r *replica) told() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.leaders, " ")
}

// ended is the cause of the nth context, when the work was over.
func (r *replica) ended(n int) error {
	r.e.Helper()
	r.e.until(fmt.Sprintf("%s's lead %d is over", r.le.Identity(), n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.causes) >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.causes[n-1]
}

// lost is why the contexts of its work have ended so far. On a real server and a busy
// machine that may be its own lateness.
func (r *replica) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.causes...)
}

// leads waits until it leads for the nth time.
func (r *replica) leads(n int) election.Term {
	r.e.Helper()
	r.e.until(fmt.Sprintf("%s leads for the %dth time", r.le.Identity(), n), func() bool {
		_, have := r.term()
		return have >= n
	})
	term, _ := r.term()
	return term
}

func (r *replica) never() {
	r.e.Helper()
	if term, n := r.term(); n != 0 {
		r.e.Errorf("%s has led %d times, last for %+v", r.le.Identity(), n, term)
	}
}

// inLine waits until n candidates stand in line.
func (e *env) inLine(n int64) {
	e.Helper()
	e.until(fmt.Sprintf("%d stand in line", n), func() bool {
		have, err := e.raw.ZCard(e.Context(), key("queue")).Result()
		must(e, err)
		return have == n
	})
}

// lineUp runs replicas so that the first leads and the others stand in line in
// that order.
func (e *env) lineUp(replicas ...*replica) {
	e.Helper()
	for i, r := range replicas {
		r.run()
		if i == 0 {
			r.leads(1)
		} else {
			e.inLine(int64(i))
		}
	}
	e.settle()
}

// trio is a leader and two candidates, each on a Client of its own.
func (e *env) trio() (a, b, c *replica) {
	e.Helper()
	a, b, c = e.replica(e.client("a"), quick("")), e.replica(e.client("b"), quick("")), e.replica(e.client("c"), quick(""))
	e.lineUp(a, b, c)
	return a, b, c
}

func key(part string) string { return "noonlock:{election/" + electionName + "}:" + part }

func (e *env) record() map[string]string {
	e.Helper()
	fields, err := e.raw.HGetAll(e.Context(), key("leader")).Result()
	must(e, err)
	return fields
}

func (e *env) exists(key string) bool {
	e.Helper()
	n, err := e.raw.Exists(e.Context(), key).Result()
	must(e, err)
	return n == 1
}

// settle lets everything happen that happens without time passing; on a real
// server only a condition can tell, see until.
func (e *env) settle() {
	if e.bubble != nil {
		synctest.Wait()
	}
}

// until waits for a condition.
func (e *env) until(what string, condition func() bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		e.settle()
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			e.Fatalf("in vain waited until %s", what)
		}
	}
}

// pass lets d pass: in a bubble by the clock, on a real server by a key that
// expires, so that the server has seen the time pass, too.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.bubble != nil {
		time.Sleep(d)
		synctest.Wait()
		return
	}
	probe := fmt.Sprintf("probe:%d", e.probes.Add(1))
	must(e, e.raw.Set(e.Context(), probe, 1, d).Err())
	e.until("time has passed", func() bool { return !e.exists(probe) })
}

// script matches one of the scripts by the number of its keys and arguments, in
// which they differ.
func script(name string) lockcoretest.Match {
	shape := map[string][2]int{
		"mutex_acquire": {5, 4}, "mutex_leave": {5, 3}, "mutex_renew": {2, 3},
		"leader_claim": {2, 6}, "leader_renew": {2, 8}, "leader_vacate": {2, 2},
		"leader_look": {3, 0}, "lock_queue": {2, 0}, "lock_promote": {3, 2},
	}[name]
	return func(cmd []string) bool {
		if cmd[0] != "EVALSHA" && cmd[0] != "EVAL" || len(cmd) < 3 {
			return false
		}
		keys, err := strconv.Atoi(cmd[2])
		return err == nil && shape[0] > 0 && keys == shape[0] && len(cmd)-3-keys == shape[1]
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustIs asserts what an error is.
func mustIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want one that is %v", err, target)
		}
	}
}
