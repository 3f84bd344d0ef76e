package explorer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

const jobKeys = "noonlock:{job/job}:"

// The times of the explored job. Its work takes longer than the TTL, so it needs renewals.
const (
	runTTL    = 2 * time.Second
	runPeriod = 3 * time.Second
	runWork   = 2500 * time.Millisecond
	runWindow = 6 * time.Second // events happen to requests of this time
	runJudged = 9 * time.Second // ticks before that must have ended
	runEnd    = 22 * time.Second
)

// A runTrial is one exploration of real Runners of one job.
type runTrial struct {
	replicas int
	cfg      singleton.JobConfig
	older    bool // the last replica has another definition
	events   int  // maximum on one path
}

// An event is what happens to a request of a replica, which are counted from 0.
type event struct {
	replica, request int
	what             happening
}

// A happening is a fault of lockcoretest with its delay, or one of those below.
type happening struct {
	kind  string
	delay time.Duration
}

const (
	partition = "Partition" // from here on, nothing of the replica arrives
	pause     = "Pause"     // an operator pauses the job for two seconds
	shutdown  = "Shutdown"  // Run's context ends
)

var happenings = []happening{
	{partition, 0},
	{lockcoretest.DropRequest, 0},
	{lockcoretest.SwallowReply, 0},
	{lockcoretest.DelayRequest, runTTL + runTTL/4}, // after its sender has stopped waiting
	{lockcoretest.DelayReply, runTTL / 2},
	{lockcoretest.DelayReply, runTTL + runTTL/4}, // no validity of a lease is left
	{lockcoretest.DuplicateRequest, 0},
	{pause, 0},
	{shutdown, 0},
}

// A runPath is one execution of the Runners with its events, and what was seen.
type runPath struct {
	runTrial
	events  []event
	mutants map[string]script // SHA1 of a script -> its mutant
	server  *lockcoretest.Redis
	job     *singleton.Job
	begin   time.Time

	mu     sync.Mutex
	sent   []int   // requests of each replica
	seen   []event // requests in the window
	active map[uint64]attemptOfRun
	starts map[int64]int    // by tick
	last   map[int64]uint64 // the greatest token, by tick if ticks may overlap
	done   map[uint64]bool  // tokens of work that succeeded
	broken string           // promise

	accounted int64     // the newest accounted tick
	free      time.Time // when the last work has returned
}

type attemptOfRun struct {
	ctx context.Context
	singleton.Run
}

// breaks notes the first broken promise. The caller has locked mu.
func (p *runPath) breaks(format string, args ...any) {
	if p.broken == "" {
		p.broken = fmt.Sprintf(format, args...)
	}
}

func (p *runPath) has(kind string) bool {
	return slices.ContainsFunc(p.events, func(e event) bool { return e.what.kind == kind })
}

// replay runs the path in a bubble, where all of it happens as it did in the path before the last event.
func (p *runPath) replay(t *testing.T) {
	t.Helper()
	p.sent, p.active = make([]int, p.replicas), map[uint64]attemptOfRun{}
	p.starts, p.last, p.done = map[int64]int{}, map[int64]uint64{}, map[uint64]bool{}
	synctest.Test(t, func(t *testing.T) {
		every, err := schedule.Parse("@every "+runPeriod.String(), schedule.Config{Name: "job"})
		must(t, err)
		p.server, p.begin = lockcoretest.NewRedis(t), every.Next(time.Now())
		time.Sleep(time.Until(p.begin)) // all ticks are whole periods later
		p.mutate(t)
		operator, err := lockcore.New(p.server.Client(), lockcore.Config{})
		must(t, err)
		p.job, err = singleton.NewJob(operator, "job")
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		nets := make([]*lockcoretest.Faults, p.replicas)
		for i := range nets {
			nets[i] = lockcoretest.NewFaults()
			mine, stopOne := context.WithCancel(ctx)
			p.inject(t, &all, nets[i], i, stopOne)
			rdb := redis.NewClient(p.server.OptionsVia(nets[i]))
			c, err := lockcore.New(rdb, lockcore.Config{Identity: string(rune('A' + i)), Logger: lockcore.Discard})
			must(t, err)
			runner, err := singleton.NewRunner(c, singleton.Config{TTL: runTTL, Drain: time.Second})
			must(t, err)
			cfg := p.cfg
			if p.older && i == p.replicas-1 {
				cfg.Revision = 1
			}
			must(t, runner.Add("job", "@every "+runPeriod.String(), p.work, cfg))
			all.Go(func() {
				err := runner.Run(mine)
				_ = c.Close(ctx)
				_ = rdb.Close()
				p.mu.Lock()
				defer p.mu.Unlock()
				if err != nil || mine.Err() == nil {
					p.breaks("Run has ended: %v", err)
				}
			})
		}
		// Whenever it wakes up, all others wait.
		for time.Sleep(time.Microsecond); time.Since(p.begin) < runEnd; time.Sleep(100 * time.Millisecond) {
			p.ledger()
		}
		if p.older && p.has(partition) {
			time.Sleep(100 * time.Second) // a definition waits until the replicas of another one count as dead
		}
		p.judge(t.Context())
		stop()
		for _, net := range nets {
			net.Heal()
		}
		all.Wait()
		_ = operator.Close(t.Context())
	})
}

// jobScripts are the scripts that the Runners send.
var jobScripts = []string{
	"job_open", "job_refresh", "job_status", "job_claim", "job_renew", "job_complete", "job_abandon", "job_skip", "job_pause", "job_leave",
}

// mutate makes the server run the mutants in place of the scripts.
func (p *runPath) mutate(t *testing.T) {
	t.Helper()
	swap := map[string]string{}
	for sum, mutant := range p.mutants {
		must(t, p.server.Client().ScriptLoad(t.Context(), wire.Naming(mutant.source)).Err())
		swap[sum] = mutant.sum()
	}
	p.server.Server().Server().SetPreHook(func(_ *server.Peer, cmd string, args ...string) bool {
		switch cmd {
		case "EVALSHA":
			args[0] = cmp.Or(swap[args[0]], args[0])
		case "EVAL":
			if mutant, ok := p.mutants[sumOf(args[0])]; ok {
				args[0] = wire.Naming(mutant.source)
			}
		}
		return false
	})
}

// inject injects the events of a replica, and notes its requests. The goroutines of events belong to all.
func (p *runPath) inject(t *testing.T, all *sync.WaitGroup, net *lockcoretest.Faults, replica int, stop func()) {
	t.Helper()
	_, err := net.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
		if !testenv.IsScript(cmd) {
			return false
		}
		p.mu.Lock()
		n := p.sent[replica]
		p.sent[replica]++
		if time.Since(p.begin) < runWindow {
			p.seen = append(p.seen, event{replica: replica, request: n})
		}
		if n == 500 {
			p.breaks("%c sends requests without end", 'A'+replica)
			net.Partition()
		}
		p.mu.Unlock()
		for _, e := range p.events {
			switch {
			case e.replica != replica || e.request != n:
			case e.what.kind == partition:
				net.Partition()
			case e.what.kind == shutdown:
				stop()
			case e.what.kind == pause:
				all.Go(func() {
					_ = p.job.Pause(context.Background())
					time.Sleep(2 * time.Second)
					_ = p.job.Resume(context.Background())
				})
			}
		}
		return false
	}})
	must(t, err)
	// Of two requests at one instant, that of the first replica arrives first. So paths can be repeated.
	_, err = net.Add(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Duration(replica+1) * time.Millisecond})
	must(t, err)
	for _, e := range p.events {
		if e.replica == replica && !slices.Contains([]string{partition, pause, shutdown}, e.what.kind) {
			_, err := net.Add(lockcoretest.Fault{Kind: e.what.kind, Match: testenv.IsScript, Skip: e.request, Count: 1, Delay: e.what.delay})
			must(t, err)
		}
	}
}

// work checks that its run may begin.
func (p *runPath) work(ctx context.Context, run singleton.Run) error {
	tick, line := run.Tick.UnixMilli(), int64(0)
	if p.cfg.AllowOverlap {
		line = tick
	}
	history, _ := p.server.Server().List(jobKeys + "runs")
	p.mu.Lock()
	for _, o := range p.active {
		if o.ctx.Err() == nil && (!p.cfg.AllowOverlap || o.Tick.Equal(run.Tick)) {
			p.breaks("%s runs %v while %s runs %v", run.Holder, run.Tick, o.Holder, o.Tick)
		}
	}
	p.active[run.Token] = attemptOfRun{ctx, run}
	if run.Token <= p.last[line] {
		p.breaks("%s has token %d after %d", run.Holder, run.Token, p.last[line])
	}
	p.last[line] = run.Token
	if p.starts[tick]++; p.starts[tick] > p.cfg.MaxAttempts {
		p.breaks("the work of %v has begun %d times", run.Tick, p.starts[tick])
	}
	if slices.ContainsFunc(history, func(e string) bool { return strings.Contains(e, fmt.Sprintf(`"tick":"%d"`, tick)) }) {
		p.breaks("%s runs %v, which has ended", run.Holder, run.Tick)
	}
	if time.Now().Before(run.Tick) {
		p.breaks("%s runs %v early", run.Holder, run.Tick)
	}
	// An abandoned run is free at once. What a lost replica has is free when its lease ends.
	if p.free.Before(run.Tick) {
		p.free = run.Tick
	}
	most := runTTL * 3 / 4
	if p.has(partition) {
		most = runTTL * 5 / 4
	}
	if late := time.Since(p.free); late > most && len(p.events) < 2 && !p.older && !p.has(pause) {
		p.breaks("%s runs %v %v after it could", run.Holder, run.Tick, late)
	}
	p.mu.Unlock()
	select {
	case <-time.After(runWork):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.active, run.Token)
	p.free = time.Now()
	p.done[run.Token] = ctx.Err() == nil
	return ctx.Err()
}

// An entry is that of a tick that is open or has ended.
type entry struct{ Run, Attempt, Tick, Last, Til string }

// ledger checks the keys of the job.
func (p *runPath) ledger() {
	db := p.server.Server().DB(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if what := recover(); what != nil {
			p.breaks("in the ledger is %v", what)
		}
	}()
	ended := map[int64]int{}
	history, _ := db.List(jobKeys + "runs")
	for _, text := range history {
		var e entry
		_ = json.Unmarshal([]byte(text), &e)
		if (number(e.Tick)-p.begin.UnixMilli())%runPeriod.Milliseconds() != 0 {
			p.breaks("the schedule does not have the recorded tick %s", e.Tick)
		}
		for tick := number(e.Tick); tick <= number(cmp.Or(e.Last, e.Tick)); tick += runPeriod.Milliseconds() {
			ended[tick]++
		}
	}
	last := db.HGet(jobKeys+"job", "last")
	if number(cmp.Or(last, "0")) < p.accounted {
		p.breaks("the newest accounted tick went back to %s", last)
	}
	p.accounted = number(cmp.Or(last, "0"))
	open := strings.Fields(db.HGet(jobKeys+"job", "open"))
	for tick := p.begin.Add(runPeriod).UnixMilli(); tick <= p.accounted; tick += runPeriod.Milliseconds() {
		n := ended[tick]
		if slices.Contains(open, strconv.FormatInt(tick, 10)) {
			n++
		}
		if n != 1 {
			p.breaks("%v is open or has ended %d times", time.UnixMilli(tick), n)
		}
	}
	for _, tick := range open {
		var e entry
		_ = json.Unmarshal([]byte(db.HGet(jobKeys+"job", "open:"+tick)), &e)
		attempt, err := strconv.Atoi(e.Attempt)
		if err != nil || attempt < 0 || attempt > p.cfg.MaxAttempts || number(tick) > p.accounted || number(cmp.Or(e.Til, "0")) > time.Now().Add(runTTL).UnixMilli() {
			p.breaks("the tick %s of %d is open as %+v", tick, p.accounted, e)
		}
		for _, key := range db.Keys() {
			if id, isTomb := strings.CutPrefix(key, jobKeys+"tomb:"); isTomb && strings.Contains(e.Run, id+".") {
				p.breaks("the tick %s is held by a run that was abandoned", tick)
			}
		}
	}
}

// judge checks that each tick has ended once, that all keys expire, and that the events have happened.
func (p *runPath) judge(ctx context.Context) {
	p.ledger()
	state, err := p.job.Status(ctx)
	runs, failed := p.job.Runs(ctx, 100)
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := map[int]bool{}
	for _, e := range p.events {
		if e.what.kind == partition || e.what.kind == shutdown {
			lost[e.replica] = true
		}
		if p.sent[e.replica] <= e.request && len(p.events) == 1 {
			p.breaks("%v did not happen", e)
		}
	}
	judged := p.begin.Add(runJudged)
	served := err == nil && failed == nil && len(p.done) > 0 && !state.Last.Before(judged.Add(-runPeriod)) &&
		!slices.ContainsFunc(state.Open, func(run singleton.OpenRun) bool { return run.Tick.Before(judged) })
	if !served && len(lost) < p.replicas {
		p.breaks("of %d replicas %d are lost, and not all ticks have ended: %v, %v, %+v", p.replicas, len(lost), err, failed, state)
	}
	for _, r := range runs {
		if r.Outcome == singleton.OutcomeSucceeded && !p.done[r.Token] {
			p.breaks("%v is recorded as a success, with token %d", r.Tick, r.Token)
		}
		if r.Last.IsZero() && p.starts[r.Tick.UnixMilli()] == 0 && !p.has(partition) && len(p.events) < 2 {
			p.breaks("%v is recorded as %s, and has not begun", r.Tick, r.Outcome)
		}
	}
	for _, key := range p.server.Server().Keys() {
		if p.server.Server().TTL(key) <= 0 {
			p.breaks("the key %s has no TTL", key)
		}
	}
}

// explore replays all paths, those with fewer events first, until one breaks a promise.
func (tr runTrial) explore(t *testing.T, l *library, edits []edit) (paths int, broken string) {
	t.Helper()
	mutants := map[string]script{}
	for _, name := range jobScripts {
		if l.changes([]string{name}, edits) {
			mutants[l.load(name, nil).sum()] = l.load(name, edits)
		}
	}
	for next := [][]event{nil}; len(next) > 0; {
		events := next[0]
		p := &runPath{runTrial: tr, events: events, mutants: mutants}
		p.replay(t)
		paths++
		if p.broken != "" {
			return paths, fmt.Sprintf("%s, on the path %v", p.broken, events)
		}
		next = next[1:]
		if len(events) == tr.events {
			continue
		}
		from := 0
		if len(events) > 0 {
			last := events[len(events)-1]
			from = 1 + slices.Index(p.seen, event{replica: last.replica, request: last.request})
		}
		for _, e := range p.seen[from:] {
			for _, e.what = range happenings {
				next = append(next, append(slices.Clone(events), e))
			}
		}
	}
	return paths, ""
}

var (
	twice  = runTrial{2, singleton.JobConfig{MaxAttempts: 2, CatchUp: singleton.CatchUpAll}, false, 1}
	once   = runTrial{2, singleton.JobConfig{MaxAttempts: 1, CatchUp: singleton.CatchUpAll}, false, 1}
	atOnce = runTrial{2, singleton.JobConfig{MaxAttempts: 2, CatchUp: singleton.CatchUpAll, AllowOverlap: true}, false, 1}
	older  = runTrial{2, twice.cfg, true, 1}
	three  = runTrial{3, twice.cfg, false, 1}
)

func TestRuns(t *testing.T) {
	t.Parallel()
	for name, tr := range map[string]runTrial{
		"2 attempts": twice, "at most once": once, "runs may overlap": atOnce, "another definition": older, "3 replicas": three,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "2 attempts" {
				tr.events = testenv.Size(1, 2)
			}
			paths, broken := tr.explore(t, newLibrary(t), nil)
			if broken != "" {
				t.Error(broken)
			}
			servers.Count(t, "%d executions of %d real Runners, with up to %d events", paths, tr.replicas, tr.events)
		})
	}
}

// Without one of these rules of the scripts, the Runners break a promise.
func TestRunsNeedTheirRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, old, new string }{
		{"a tick that is held is refused", "job_claim", "local left = held and left_of(held, now) or 0", "local left = 0"},
		{"a tick that has ended is refused", "job_claim", "and tonumber(tick) <= tonumber(last) then", "and not redis then"},
		{"attempts are counted", "job_claim", "tonumber(record.attempt) + 1", "1"},
		{"a renewal extends the lease", "job_renew", "record.til =", "record.never ="},
		{"a tick that is abandoned is free", "job_abandon", "record.run, record.til, record.ttl = '', whole(now + tonumber(wait)), wait", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t)
			_, broken := once.explore(t, l, l.without(t, c.file, c.old, c.new))
			if broken == "" {
				_, broken = twice.explore(t, l, l.without(t, c.file, c.old, c.new))
			}
			if broken == "" {
				t.Error("nothing notices it")
			}
			t.Log(broken)
		})
	}
}
