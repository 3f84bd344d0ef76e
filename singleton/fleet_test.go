package singleton_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

const patience = testenv.Patience

var errBroken = errors.New("broken on purpose")

// A fleet is the server of a test, and what the replicas on it do.
type fleet struct {
	*testenv.Env
	book  book // the runs of jobs
	log   testenv.Log
	delay time.Duration // LockDelay of the replicas
	in    int           // the database of the replicas
	all   map[string]*replica
	reg   *prometheus.Registry // of the replicas
	apart bool                 // each replica has its own one instead

	mu     sync.Mutex
	reader *lockcore.Client // without the faults
}

func newFleet(e *testenv.Env) *fleet {
	e.Days = true
	f := &fleet{Env: e, all: map[string]*replica{}, reg: prometheus.NewRegistry()}
	e.Cleanup(func() {
		if e.Failed() {
			e.Logf("the log:\n%s", &f.log)
		}
	})
	return f
}

// onBoth runs a test in a bubble and on a real server, at the same time.
func onBoth(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(e.T, newFleet(e)) })
}

func inBubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	testenv.InBubble(t, func(e *testenv.Env) { test(e.T, newFleet(e)) })
}

// ttl returns d in a bubble. On a real server it returns a TTL that a busy machine keeps.
func (f *fleet) ttl(d time.Duration) time.Duration {
	if f.Bubble != nil {
		return d
	}
	return min(5*time.Second, cmp.Or(f.delay, time.Hour))
}

// A replica is one process of the fleet from the view of Redis.
type replica struct {
	f      *fleet
	name   string
	net    *lockcoretest.Faults
	clock  *testenv.Clock
	reg    *prometheus.Registry
	client *lockcore.Client
	runner *singleton.Runner

	*replicaRun
	dead atomic.Bool
}

// replica returns a replica with its own network.
func (f *fleet) replica(name string, cfg singleton.Config) *replica {
	f.Helper()
	opt, net := f.Link()
	opt.DB = f.in
	r := &replica{f: f, name: name, net: net, clock: testenv.NewClock(), reg: f.reg}
	if f.apart {
		r.reg = prometheus.NewRegistry()
	}
	log := f.log.Info(name + ": ")
	r.client = f.ClientOn(r.clock.Now, opt, lockcore.Config{Identity: name, Logger: log, LockDelay: f.delay, Registerer: r.reg})
	cfg.TTL = cmp.Or(cfg.TTL, f.ttl(2*time.Second))
	cfg.Drain = cmp.Or(cfg.Drain, time.Second)
	r.runner = testenv.Call(singleton.NewRunner(r.client, cfg)).Must(f)
	f.all[name] = r
	return r
}

// start starts a replica of the job draw for each letter of names.
func (f *fleet) start(names, schedule string, work func(context.Context, singleton.Run) error, cfg singleton.JobConfig, of ...singleton.Config) map[string]*replica {
	f.Helper()
	for name := range strings.SplitSeq(names, "") {
		f.replica(name, append(of, singleton.Config{})[0]).add("draw", schedule, work, cfg)
	}
	for name := range strings.SplitSeq(names, "") {
		f.all[name].run()
	}
	return f.all
}

// add adds a job whose runs are recorded in the fleet's book.
func (r *replica) add(job, schedule string, work func(ctx context.Context, run singleton.Run) error, cfg singleton.JobConfig) {
	r.f.Helper()
	testenv.Must(r.f, r.runner.Add(job, schedule, r.noted(work), cfg))
}

func (r *replica) noted(work func(ctx context.Context, run singleton.Run) error) func(context.Context, singleton.Run) error {
	return func(ctx context.Context, run singleton.Run) error {
		n := r.f.book.begin(r.name, run)
		defer r.f.book.end(n)
		if work == nil {
			return nil
		}
		return work(ctx, run)
	}
}

func (r *replica) run() {
	r.replicaRun = r.f.run(r.runner.Run)
	r.f.Cleanup(r.stop)
}

// stop ends Run and waits until it has returned.
func (r *replica) stop() {
	r.f.Helper()
	r.cancel()
	if r.dead.Load() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.client.Close(over) // so it does not try to hand over for long
	}
	if err := r.result(); err != nil {
		r.f.Errorf("Run of %s: %v", r.name, err)
	}
}

// die removes the replica like SIGKILL: its connections end, and nothing that it sends from
// now on arrives. Its later effects in this process do not count.
func (r *replica) die() *lockcoretest.Rule {
	cut := r.net.Partition()
	r.net.Cut()
	r.dead.Store(true)
	r.f.book.died(r.name)
	return cut
}

// takenOver kills the replica of the nth attempt of the job draw. It returns the next one, which another replica makes in
// time.
func (f *fleet) takenOver(n int) (next entry) {
	f.Helper()
	last, died := f.begun("draw", n)[n-1], time.Now()
	f.all[last.replica].die()
	next = f.begun("draw", n+1)[n]
	if next.replica == last.replica || next.run.RunID != last.run.RunID || next.run.Attempt != last.run.Attempt+1 || next.run.Token <= last.run.Token {
		f.Errorf("after %+v of %s came %+v of %s", last.run, last.replica, next.run, next.replica)
	}
	if f.Bubble != nil {
		f.within("the takeover came", next.begin.Sub(died), 2500*time.Millisecond) // the TTL is 2 s
	}
	return next
}

// each does something with all replicas at once.
func (f *fleet) each(does func(r *replica)) {
	var all sync.WaitGroup
	for _, r := range f.all {
		all.Go(func() { does(r) })
	}
	all.Wait()
}

// begun waits until n attempts of a job have begun, and returns them.
func (f *fleet) begun(job string, n int) []entry {
	f.Helper()
	var found []entry
	f.Until(fmt.Sprintf("%d attempts of %s have begun", n, job), func() bool {
		found = nil
		for _, e := range f.book.all() {
			if e.run.Job == job {
				found = append(found, e)
			}
		}
		return len(found) >= n
	})
	return found
}

// recorded waits until the history of a job has n entries, and returns them, oldest first.
func (f *fleet) recorded(job string, n int) []singleton.HistoryEntry {
	f.Helper()
	var found []singleton.HistoryEntry
	f.Until(fmt.Sprintf("%d entries of %s are recorded", n, job), func() bool {
		found = f.runs(job)
		return len(found) >= n
	})
	return found
}

// firstEnd waits for the first end of a run in the history of a job. On a busy machine the
// history may begin with skipped ticks.
func (f *fleet) firstEnd(job string) (first singleton.HistoryEntry) {
	f.Helper()
	f.Until("a run of "+job+" is recorded", func() bool {
		for _, r := range f.runs(job) {
			if r.Last.IsZero() {
				first = r
				return true
			}
		}
		return false
	})
	return first
}

func (f *fleet) key(job, part string) string { return "noonlock:{job/" + job + "}:" + part }

// request matches the requests of one of the ledger's scripts.
func (f *fleet) request(name string) func(cmd []string) bool {
	f.Helper()
	return testenv.Scripts{Files: os.DirFS("internal/ledger")}.Match(f, "job_"+name)
}

// refuses lets the server refuse the requests of one of the ledger's scripts; "": of none.
func (f *fleet) refuses(script string) {
	f.Helper()
	isOne := func([]string) bool { return false }
	if script != "" {
		isOne = f.request(script)
	}
	f.Bubble.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		refused := isOne(append([]string{cmd}, args...))
		if refused {
			c.WriteError("NOPERM this user has no permissions")
		}
		return refused
	})
}

// parsed is a schedule of the job draw.
func parsed(t testing.TB, spec string) schedule.Schedule {
	t.Helper()
	return testenv.Call(schedule.Parse(spec, schedule.Config{Name: "draw"})).Must(t)
}

// within asserts that something happened at once or after at most that time.
func (f *fleet) within(what string, took, most time.Duration) {
	f.Helper()
	if took < 0 || took > most {
		f.Errorf("%s after %v, want at most %v", what, took, most)
	}
}

// sleep is work that takes a while, and ends with its context.
func sleep(d time.Duration) func(context.Context, singleton.Run) error {
	return func(ctx context.Context, _ singleton.Run) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// claims counts the claims of a replica from now on.
func (r *replica) claims() (count func() int) {
	var n atomic.Int64
	claim := r.f.request("claim")
	r.net.Inject(r.f, countingFault(func(cmd []string) {
		if claim(cmd) {
			n.Add(1)
		}
	}))
	return func() int { return int(n.Load()) }
}

// countingFault shows requests to see, and does no harm: the reply to one of them
// is handed over in small pieces.
func countingFault(see func(cmd []string)) lockcoretest.Fault {
	return lockcoretest.Fault{Kind: lockcoretest.TrickleReply, Count: 1, Match: func(cmd []string) bool {
		see(cmd)
		return true
	}}
}
