package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

type lockJSON struct {
	Name    string
	Kind    string
	NoTTL   bool `json:"no_ttl"`
	Holders []struct{ Identity string }
	Waiters []struct{ Identity string }
}

// works starts a leader of the election board, and a replica that leads three partitions.
func (e *env) works() (resigns func()) {
	e.Helper()
	resigns = e.elects()
	shards := testenv.Call(partition.NewRunner(e.client, "shards", 3, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{})).Must(e)
	e.Background(shards.Run)
	e.shows("get partitions shards -o json", `"leads": 3`)
	e.shows("get election board", e.client.Identity())
	return resigns
}

// elects starts a candidate for the election board.
func (e *env) elects() (stop func()) {
	e.Helper()
	_, stop = actors.Elector(e.Env, e.client, "board", election.Config{Metadata: map[string]string{"version": "7"}})
	return stop
}

// shows runs a command until it prints the texts.
func (e *env) shows(command string, texts ...string) {
	e.Helper()
	e.Until(fmt.Sprintf("%s prints %q", command, texts), func() bool {
		r := e.noonctl(strings.Fields(command)...)
		return r.code == 0 && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(r.out, text) })
	})
}

// says runs a command. A text that begins with = is the whole output, one that begins with ! is not printed, and others
// are. If the command fails, its error is one line.
func (e *env) says(command string, code int, texts ...string) {
	e.Helper()
	args := strings.Fields(command)
	r := e.noonctl(args...)
	if code != 0 {
		check(e, r, code, nil, args)
	} else if r.code != 0 {
		e.Errorf("noonctl %s: %+v", command, r)
	}
	for _, text := range texts {
		whole, isWhole := strings.CutPrefix(text, "=")
		absent, isAbsent := strings.CutPrefix(text, "!")
		if isWhole && r.out != whole || isAbsent && strings.Contains(r.out+r.errOut, absent) || !isWhole && !isAbsent && !strings.Contains(r.out+r.errOut, text) {
			e.Errorf("noonctl %s: want %q, and it prints\n%s%s", command, text, r.out, r.errOut)
		}
	}
}

// What commands print about things of all kinds, and about keys of other programs. An unknown name has its own exit
// code, and what exists is printed all the same. KIND/NAME, all and --no-headers are as with kubectl. Completion lists the
// names that begin with what was typed.
func TestOutput(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Hold(e.client, "orders")
	actors.Wait(e.Env, e.Client("worker-2"), "orders")
	e.Hold(e.client, "orders/eu-west-1")
	rw := testenv.Call(e.client.RWMutex("catalogue", "reader-1", lockcore.LeaseConfig{})).Must(t)
	testenv.Call(rw.TryRLock(t.Context())).Must(t)
	gpus := testenv.Call(e.client.Semaphore("gpus", 2, lockcore.LeaseConfig{})).Must(t)
	testenv.Call(gpus.TryAcquire(t.Context())).Must(t)
	e.set("noonlock:{foreign}:lock", "sesame")
	testenv.Must(t, e.Raw.HSet(t.Context(), "noonlock:{hash}:lock", "sesame", "sesame").Err())
	stopLeader := e.works()
	b := &env{Env: e.Env, url: e.url, client: e.Client("b")}
	stopB := b.elects()
	for _, job := range []string{"draw", "poll"} {
		e.runs(job, "@daily", actors.Nothing, singleton.JobConfig{})
	}

	for _, l := range decode[[]lockJSON](t, e.must("get", "locks", "-o", "json")) {
		seen := testenv.Call(e.client.Inspect(t.Context(), l.Name)).Must(t)
		if l.Kind != string(seen.Kind) || l.NoTTL != seen.NoTTL || len(l.Holders) != len(seen.Holders) || len(l.Waiters) != len(seen.Waiters) {
			t.Errorf("get %+v, Inspect %+v", l, seen)
		}
	}
	type electionJSON struct {
		Name, Leader string
		Token        uint64
		Candidates   []struct{ Identity string }
		Metadata     map[string]string
	}
	got := decode[electionJSON](t, e.must("get", "election", "board", "-o", "json"))
	r := testenv.Call(testenv.Call(election.NewElection(e.client, "board")).Must(t).Record(t.Context())).Must(t)
	if got.Name != "board" || got.Leader != "worker-1" || got.Token != r.Token || len(got.Candidates) != 1 || got.Candidates[0].Identity != "b" || got.Metadata["version"] != "7" {
		t.Errorf("get %+v, Record %+v", got, r)
	}
	lists := decode[map[string][]struct{ Name, Job string }](t, e.must("get", "all", "-o", "json"))
	if len(lists) != 4 || lists["locks"][0].Name != "catalogue" || lists["jobs"][1].Job != "poll" {
		t.Errorf("get all: %+v", lists)
	}
	built := decode[map[string]string](t, e.must("version", "-o", "json"))

	for _, c := range []struct {
		command string
		code    int
		texts   []string
	}{
		{"get locks -o name", 0, []string{"=catalogue\nforeign\ngpus\nhash\norders\norders/eu-west-1\n"}},
		{"resize gpus -n 3", 0, []string{"=semaphore gpus has 3 slots\n"}},
		{"get locks", 0, []string{"semaphore 1/3 ", "NAME ", "SINCE", " ago", "another program", "!sesame"}},
		{"get locks -o json", 0, []string{"!sesame"}},
		{"get locks catalogue -o yaml", 0, []string{"name: catalogue\nkind: readwrite\nholders:\n"}},
		{"describe lock orders", 0, []string{"worker-1", "worker-2"}},
		{"describe lock foreign", 0, []string{"another program", "!sesame"}},
		{"describe election board", 0, []string{"Leader:", "version=7", "  b "}},
		{"get partitions", 0, []string{"NAME ", "LED", "shards   led     3            1          3, 3 each"}},
		{"get partitions shards -o json", 0, []string{`"leads": 3`, `"leader": "worker-1"`}},
		{"describe partition shards", 0, []string{"shards", "led", "worker-1"}},
		{"describe partition x", 66, []string{`there is no partition "x"`}},
		{"get job/draw job/poll -o name", 0, []string{"=draw\npoll\n"}},
		{"get all job/draw lock/orders -o name", 0, []string{"=lock/orders\njob/draw\n"}},
		{"get all", 0, []string{"NAME ", "lock/orders ", "held ", "election/board "}},
		{"get all --no-headers", 0, []string{"!NAME ", "lock/orders "}},
		{"get all --prefix empty", 0, []string{"=", "There are no locks, elections, jobs or partitions "}},
		{"describe lock/orders", 0, []string{"worker-2"}},
		{"version", 0, []string{"Version:", built["version"], runtime.Version()}},

		{"get lock ordres", 66, []string{`no lock "ordres" is held`}},
		{"release eu-west --yes", 66, []string{`no lock "eu-west" is held`}},
		{"pause darw", 66, []string{`there is no job "darw"`}},
		{"history darw", 66, []string{`there is no job "darw"`}},
		{"get job darw -o json", 66, []string{"=", `there is no job "darw"`}},
		{"describe job darw", 66, []string{`there is no job "darw"`}},
		{"get election x", 66, []string{`there is no election "x"`}},
		{"describe election x", 66, []string{`there is no election "x"`}},
		{"resign x", 66, []string{`there is no election "x"`}},
		{"resign board --to x", 66, []string{"election board has no candidate x; it has b"}},
		{"resign board --reason " + strings.Repeat("x", 201), 64, []string{"--reason is", "200 bytes"}},
		{"get locks orders nope", 66, []string{"worker-1"}},
		{"get job/draw lock/none", 66, []string{"job/draw"}},

		{"__complete get locks ord", 0, []string{"=orders\norders/eu-west-1\n:4\n"}},
		{"__complete describe lock cat", 0, []string{"=catalogue\n:4\n"}},
		{"__complete release catalogue orders", 0, []string{"=:4\n"}},
		{"__complete pause x", 0, []string{"=:4\n"}},
		{"__complete get locks -o n", 0, []string{"=table\njson\nyaml\nname\n:4\n"}},
	} {
		e.says(c.command, c.code, c.texts...)
	}
	for _, args := range [][]string{{"--redis", e.url, "get", "locks", "cat"}, {"release", "--redis=" + e.url, "--timeout=5s", "cat"}} {
		if r := run(t.Context(), "", append([]string{"__complete"}, args...)...); r.out != "catalogue\n:4\n" {
			t.Errorf("completion of %q: %+v", args, r)
		}
	}
	if r := run(t.Context(), "redis://127.0.0.1:1", "__complete", "get", "locks", ""); r.out != ":4\n" {
		t.Errorf("completion while Redis is away: %+v", r)
	}

	e.says("resign board --to b --reason drained", 0, "=election board: worker-1 was asked to transfer to b\n")
	e.shows("get election board -o json", `"leader": "b"`)
	stopLeader()
	e.says("resign board --to x", 66, "election board has no candidate x; it has none")
	r = testenv.Call(testenv.Call(election.NewElection(e.client, "board")).Must(t).Record(t.Context())).Must(t)
	stopB()
	e.says("resign board", 66, "election board has no leader")
	e.says("describe election board", 0, "no leader", "Resigned")
	if got := decode[[]electionJSON](t, e.must("get", "elections", "-o", "json"))[0]; got.Leader != "" || got.Token != r.Token || len(got.Candidates) != 0 {
		t.Errorf("after its end: %+v", got)
	}
}

// jobs runs three jobs. The first run of draw fails, those of slow ignore their context until the end of the test, and
// those of report do nothing.
func (e *env) jobs() (stopReport func()) {
	e.Helper()
	release, failed := make(chan struct{}), false
	work := func(_ context.Context, run singleton.Run) error {
		switch {
		case run.Job == "slow":
			<-release
		case run.Job == "draw" && !failed:
			failed = true
			return errors.New("no\nwinners\x1b[2J")
		}
		return nil
	}
	for _, name := range []string{"draw", "slow", "report"} {
		stopReport = e.runs(name, "@daily", work, singleton.JobConfig{MaxAttempts: 1})
	}
	e.Cleanup(func() { close(release) })
	return stopReport
}

// get jobs, describe job and history show what Status and Runs return. What an operator asks is one command: which jobs
// fail or run, in which order, and what was canceled and still runs. rerun runs a failed tick again, once.
func TestJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.jobs()
	e.says("get jobs", 0, "idle", "0 0 * * *", "!ago")
	e.says("trigger draw --reason now", 0, "job draw triggered: trigger/20", "!no replica")
	e.must("trigger", "slow")
	names := func(args ...string) string {
		return strings.Join(strings.Fields(e.must(append([]string{"get", "jobs", "-o", "name"}, args...)...)), " ")
	}
	e.Until("draw has failed", func() bool { return names("--state", "failing") == "draw" })
	e.Until("slow runs", func() bool { return names("--state", "running") == "slow" })
	testenv.Equal(t, "the jobs by attention", names("--sort", "attention"), "draw slow report")
	testenv.Equal(t, "the jobs by name", names("--sort", "name"), "draw report slow")
	e.says("get jobs", 0, "Jobs that fail: 1 of 3.\n")
	e.says("describe job slow", 0, "running", "!Last tick", "  trigger/20", "worker-1", "0 0 * * *")
	for _, command := range []string{"history draw", "describe job draw", "history draw --since 1h", "history draw --since 2020-01-01T00:00:00Z"} {
		e.says(command, 0, "failed", `no; winners\x1b[2J`, "trigger/20")
	}
	e.says("history draw --since "+time.Now().Add(time.Hour).Format(time.RFC3339), 0, "=")
	j := testenv.Call(singleton.NewJob(e.client, "draw")).Must(t)
	status := testenv.Call(j.Status(t.Context())).Must(t)
	got := decode[singleton.Status](t, e.must("get", "job", "draw", "-o", "json"))
	got.Now = status.Now
	testenv.Equal(t, "get", toJSON(t, got), toJSON(t, status))
	testenv.Equal(t, "history", toJSON(t, e.history("draw")), toJSON(t, testenv.Call(j.Runs(t.Context(), 5)).Must(t)))

	e.says("cancel draw", 66, "nothing is running")
	e.says("cancel slow --tick 2020-01-01T00:00:00Z", 66, "2020-01-01T00:00:00Z is not open")
	e.says("cancel slow --reason input", 0, "job slow canceled: trigger/20")
	e.says("describe job slow", 0, "running, canceled\n", ": input")

	tick := e.history("draw")[0].Name()
	e.says("rerun draw --reason mended --tick "+tick, 0, "runs again\n")
	e.shows("history draw", "succeeded")
	e.says("rerun draw --tick "+tick, 1, "the tick has succeeded")
	e.says("rerun draw --tick 2020-01-01T00:00:00Z", 66, "there is no 2020-01-01T00:00:00Z in the history")
	e.says("rerun draw --tick "+strings.TrimPrefix(tick, "trigger/"), 66, "in the history")
	e.says("rerun x --tick "+tick, 66, "there is no job")
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	return string(testenv.Call(json.Marshal(v)).Must(t))
}

// Descriptions and histories have the acts of operators. An act that changes nothing says that its reason is not
// recorded, and a trigger that no replica is there. All jobs are paused and resumed, with a line for each; a Once is no
// job. A job is forgotten when no replica runs it any more.
func TestActs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stopReport := e.jobs()
	const unchanged = " changed nothing, and its reason is not recorded; the former one stays"
	e.says("resume draw --reason ready", 0, "this resume"+unchanged+"\n")
	e.says("pause draw --reason audit", 0, "=job draw paused\n")
	e.says("pause draw", 0, "!nothing")
	e.says("pause draw --reason holidays", 0, "this pause"+unchanged+", by ", ": audit\n")
	e.says("describe job draw", 0, "Paused by:", ": audit\n", " pause ")
	e.says("history draw", 0, "Acts of operators:", "audit", " pause ")
	acts := decode[struct{ Acts []singleton.Action }](t, e.must("history", "draw", "-o", "json", "--limit", "1")).Acts
	if len(acts) != 1 || acts[0].Verb != "pause" || acts[0].Reason != "audit" || acts[0].By == "" {
		t.Errorf("the newest act: %+v", acts)
	}
	for range 10 {
		e.must("trigger", "draw")
	}
	e.says("describe job draw", 0, ": audit", "! pause ") // ten acts are newer
	e.says("get jobs", 0, "paused")

	runner := testenv.Call(singleton.NewRunner(e.client, singleton.Config{})).Must(t)
	testenv.Must(t, runner.Once(t.Context(), "x", func(context.Context) error { return nil }))
	for range 2 {
		e.says("pause --all --reason holidays", 0, "job draw paused\njob report paused\njob slow paused\n", "!once")
	}
	e.says("describe job report", 0, "holidays")
	e.says("resume --all", 0, "job draw resumed\njob report resumed\njob slow resumed\n")
	e.says("get jobs", 0, "!paused")
	e.says("pause draw --all", 64, "noonctl: ")
	e.says("pause", 64, "needs JOB")

	e.says("forget job report", 1, `"report"`, "already running on "+e.client.Identity())
	stopReport()
	e.shows("get jobs", "no replicas")
	e.says("trigger report", 0, "no replica of the job is there; the run waits for one\n")
	e.says("forget job/report", 0, "=job report forgotten\n")
	e.says("get jobs -o name", 0, "=draw\nonce/x\nslow\n")
	e.says("forget job report", 66, `there is no job "report"`)
	e.says("forget", 64, "forget needs")
}

// A job that cannot be read does not hide the others.
func TestBrokenThings(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, job := range []string{"first", "zebra"} {
		e.runs(job, "@daily", actors.Nothing, singleton.JobConfig{})
	}
	for i := range 5 {
		e.set(fmt.Sprintf("noonlock:{job/m%d}:job", i), "x")
	}
	testenv.Must(t, e.Raw.HSet(t.Context(), "noonlock:{job/newer}:job", "v", "9999", "last", "1").Err())
	for _, args := range [][]string{{"get", "jobs", "-o", "name"}, {"get", "jobs", "-o", "name", "first", "m0", "m1", "m2", "m3", "newer", "zebra"}} {
		r := e.noonctl(args...)
		check(t, r, 1, []string{"another program", `"m0"`, `"m2"`, "more could not be read"}, args)
		if r.out != "first\nzebra\n" {
			t.Errorf("noonctl %q: the output is %q", args, r.out)
		}
	}
	e.fails(1, []string{`"newer"`, "newer schema"}, "get", "job", "newer")
}

// If Redis is away, a command fails after --timeout with one sentence and its own exit code.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Real.Pause()
	for url, want := range map[string]string{
		"redis://127.0.0.1:1": "connection refused", e.url: "", "redis+cluster://127.0.0.1:1": "connection refused", "redis+sentinel://127.0.0.1:1?master=who": "",
	} {
		for _, command := range []string{"get locks", "describe job x"} {
			t.Run(url+" "+command, func(t *testing.T) {
				t.Parallel()
				args, start := strings.Fields(command+" --timeout 3s"), time.Now()
				check(t, run(t.Context(), url, args...), 69, []string{"Redis at ", "did not answer within 3s: ", want}, args)
				if took := time.Since(start); took > testenv.Patience/4 {
					t.Errorf("%q took %s", args, took)
				}
			})
		}
	}
}

// One node of a cluster has only some names, so a list of them is refused.
func TestFault76_OneNodeOfACluster(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t, 2, 0)
	one := "redis://" + cluster.Addrs()[0]
	check(t, run(t.Context(), one, "get", "locks"), 1, []string{"one of the 2 primaries of a cluster", "redis+cluster"}, nil)
	if r := run(t.Context(), "redis+cluster://"+strings.Join(cluster.Addrs(), ","), "get", "all"); r.code != 0 {
		t.Errorf("get all: %+v", r)
	}
	refused := 0
	for i := range 20 { // names of both nodes
		if r := run(t.Context(), one, "describe", "lock", strconv.Itoa(i)); strings.Contains(r.errOut, "redis+cluster") {
			refused++
			check(t, r, 1, []string{"is one node of a cluster", "MOVED"}, nil)
		}
	}
	if refused == 0 {
		t.Error("no name of the other node is refused")
	}
	if r := run(t.Context(), "redis://"+servers.Cluster(t, 1, 0).Addrs()[0], "get", "jobs"); r.code != 0 {
		t.Errorf("the only node of a cluster: %+v", r)
	}
}

// What only reads needs no right to write, on any topology.
func TestFault136_ReadersWriteNothing(t *testing.T) {
	t.Parallel()
	one, cluster, watched := servers.Redis(t), servers.LendCluster(t), servers.LendWatched(t)
	const reader = "reader:secret@"
	for name, on := range map[string]struct {
		primaries []*servers.RedisServer
		options   redis.UniversalOptions
		url       string
	}{
		"one server": {[]*servers.RedisServer{one}, redis.UniversalOptions{Addrs: []string{one.Addr()}}, "redis://" + reader + one.Addr()},
		"cluster":    {cluster.Primaries, redis.UniversalOptions{Addrs: cluster.Addrs(), IsClusterMode: true}, "redis+cluster://" + reader + strings.Join(cluster.Addrs(), ",")},
		"Sentinel": {
			[]*servers.RedisServer{watched.Primary},
			redis.UniversalOptions{Addrs: []string{watched.Sentinel.Addr()}, MasterName: servers.WatchedName},
			"redis+sentinel://" + reader + watched.Sentinel.Addr() + "?master=" + servers.WatchedName,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range on.primaries {
				rdb := redis.NewClient(testenv.Options(s.Addr()))
				testenv.Must(t, rdb.ACLSetUser(t.Context(), "reader", "reset", "on", ">secret", "~*", "&*", "+@all", "-@write").Err())
				testenv.Must(t, rdb.Close())
			}
			c, err := lockcore.NewFromOptions(&on.options, lockcore.Config{Identity: "worker-1", Logger: lockcore.Discard})
			testenv.Must(t, err)
			e := &env{Env: &testenv.Env{T: t, Raw: redis.NewUniversalClient(&on.options)}, url: on.url, client: c}
			t.Cleanup(func() {
				_ = c.Close(context.Background())
				_ = e.Raw.Close()
			})
			e.Hold(e.client, "orders")
			e.works()
			e.runs("draw", "@daily", actors.Nothing, singleton.JobConfig{})
			testenv.Call(testenv.Call(singleton.NewJob(c, "draw")).Must(t).Trigger(t.Context())).Must(t)
			e.shows("get all", "lock/orders ", "election/board ", "partition/shards ", "job/draw ")
			e.shows("history draw", "succeeded")
			for _, args := range []string{
				"describe lock orders", "describe election board", "describe partition shards", "describe job draw",
				"get locks none", "get jobs -o json", "history draw --since 1m",
			} {
				if r := e.noonctl(strings.Fields(args)...); r.code != 0 && r.code != 66 || strings.Contains(r.errOut, "NOPERM") {
					t.Errorf("%s: %+v", args, r)
				}
			}
			e.fails(77, []string{"NOPERM"}, "pause", "draw") // the rights are those of a reader
			options := on.options
			options.Username, options.Password = "reader", "secret"
			reader := testenv.Call(lockcore.NewFromOptions(&options, lockcore.Config{Logger: lockcore.Discard})).Must(t)
			defer reader.Close(t.Context())
			page := testenv.Call(statusz.Handler(reader, statusz.Config{})).Must(t)
			defer page.Close()
			for _, path := range []string{"/job?name=draw", "/terms?name=board"} {
				w := httptest.NewRecorder()
				if page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "NOPERM") {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
}

// A missing right and a wrong password are named, and what noonctl asked for in place of the script's hash.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Hold(e.client, "orders")
	for name, rules := range map[string][]string{"noscan": {"~*", "+@all", "-scan"}, "noscripts": {"~*", "+@all", "-eval"}, "nokeys": {"~other*", "+@all"}, "notype": {"~*", "+@all", "-type"}} {
		e.As(name, rules...)
	}
	as := func(user, password string) string { return "redis://" + user + ":" + password + "@" + e.Real.Addr() }
	for _, test := range []struct {
		url, want string
		args      []string
	}{
		{as("noscan", "secret"), "scan", []string{"get", "locks"}},
		{as("noscripts", "secret"), "eval", []string{"get", "locks", "orders"}},
		{as("nokeys", "secret"), "NOPERM", []string{"release", "orders", "--yes"}},
		{as("notype", "secret"), `inspect "orders": NOPERM `, []string{"describe", "lock", "orders"}},
		{as("noscan", "sesame"), "WRONGPASS", []string{"get", "jobs"}},
	} {
		r := run(t.Context(), test.url, test.args...)
		check(t, r, 77, []string{test.want}, test.args)
		if strings.Contains(r.errOut, "sesame") || strings.Contains(r.errOut, "user_script") {
			t.Errorf("a password or the place in a script is printed: %s", r.errOut)
		}
	}
}

// Names with unusual characters are listed, completed and found. What could control the
// terminal, reorder a line or is invisible is escaped, in all output and in errors.
func TestUnusualNames(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	const odd = "\u202egnp\u2066\u200b\u061c\u3164\U000e0001"
	const escaped = `\u202egnp\u2066\u200b\u061c\u3164\U000e0001`
	names := []string{"-o", "a*b?[c]", "räksmörgås", "雪", `back\slash`, "a:b:lock", "--", odd, "😀", "a'b\"c"}
	for _, name := range names {
		e.Hold(e.client, name)
	}
	e.client = e.Client(odd)
	e.runs(odd, "@yearly", func(context.Context, singleton.Run) error { return errors.New(odd + "\x1b[2J\n\u2028") }, singleton.JobConfig{MaxAttempts: 1})
	e.Hold(e.client, "ours")
	e.must("trigger", odd)
	e.Until("it has failed", func() bool { return len(e.history(odd)) == 1 })
	names = append(names, "ours")
	slices.Sort(names)
	var ofYAML []lockJSON
	testenv.Must(t, yaml.Unmarshal([]byte(e.must("get", "locks", "-o", "yaml")), &ofYAML))
	for _, list := range [][]lockJSON{decode[[]lockJSON](t, e.must("get", "locks", "-o", "json")), ofYAML} {
		var got []string
		for _, l := range list {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("locks %q, want %q", got, names)
		}
	}
	for _, name := range names {
		if l := decode[lockJSON](t, e.must("get", "lock", "-o", "json", "--", name)); l.Name != name {
			t.Errorf("%q: %+v", name, l)
		}
	}
	for command := range strings.SplitSeq("get locks,get lock ODD,get locks -o name,get locks -o json,get locks -o yaml,get all,get all -o name,"+
		"get all -o json,get all -o yaml,get job/ODD,describe lock ODD,describe lock ours,describe job ODD,describe job ODDx,describe ODD/x,ODD,"+
		"history ODD,history ODD -o json,history ODD -o yaml,history ODD --since 1ns,release ODD,release ODD --yes,pause ODD,"+
		"trigger ODD --prefix ODD,resign ODD,get locks --sort ODD,get jobs --sort ODD,get locks -o ODD,cancel ODD --tick ODD,"+
		"get elections --prefix ODD,get locks --redis redis://ODD", ",") {
		args := strings.Split(strings.ReplaceAll(command, "ODD", odd), " ")
		r := e.noonctl(args...)
		said := r.out + r.errOut
		if i := strings.IndexFunc(said, func(c rune) bool { return c != '\n' && (!unicode.IsPrint(c) || c == '\u3164') }); i >= 0 {
			t.Errorf("%q prints %q", args, said[i:])
		}
		if strings.Contains(said, "gnp") && !strings.Contains(strings.ReplaceAll(strings.ToLower(said), `\udb40\udc01`, `\u000e0001`), strings.ToLower(escaped)) {
			t.Errorf("%q does not escape the name:\n%s", args, said)
		}
	}
	if r := e.noonctl("__complete", "get", "locks", ""); strings.Contains(r.out, "gnp") || !strings.Contains(r.out, "räksmörgås") {
		t.Errorf("completion: %q", r.out)
	}
}

// A run at an instant has an id and a payload, which is read from a text or a file, and is shown by nothing.
func TestTriggerAtAnInstant(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.runs("draw", "@daily", actors.Nothing, singleton.JobConfig{})
	file := filepath.Join(t.TempDir(), "order")
	testenv.Must(t, os.WriteFile(file, []byte("the secret"), 0o600))
	const at = "2099-01-02T03:04:05Z"
	e.says("trigger draw --at "+at+" --id order-7 --payload @"+file+" --reason Christmas", 0, "job draw triggered: order-7 at "+at+"\n")
	e.says("trigger draw --at "+at+" --id order-7 --payload @"+file, 0, "job draw triggered: order-7 at "+at+"\n")
	e.says("trigger draw --at "+at+" --id order-7 --payload secret", 1, "the id has another instant or payload", "!secret")
	e.says("describe job draw", 0, "order-7", "waits for its instant", "NOT BEFORE", "Christmas", "!secret")
	e.says("get job draw -o json", 0, `"not_before": "2099-01-02`, "!secret")
	e.says("cancel draw --id order-7", 0, "job draw canceled: order-7")
	e.says("cancel draw --id order-7", 66, "no run of the id order-7 waits or is open")
	e.says("history draw", 0, "canceled", "!secret")
	for _, wrong := range []string{"--id x", "--at " + at, "--payload x", "--at noon --id x", "--at " + at + " --id x --payload @" + file + "-not"} {
		e.says("trigger draw "+wrong, 64, "noonctl: ")
	}
	e.says("cancel draw --id x --tick "+at, 64, "only one of them")
}

// If nobody reads the output, the program ends without an error message.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i := range 2000 {
		e.set(fmt.Sprintf("noonlock:{orders-%d}:lock", i), "x")
	}
	cmd := e.program("get", "locks")
	reader, writer, err := os.Pipe()
	testenv.Must(t, err)
	reader.Close()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = writer, &said
	err = cmd.Run()
	writer.Close()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE || said.Len() > 0 {
		t.Errorf("it ended with %v, %q", err, said.String())
	}
}
