package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

type lockJSON struct {
	Name    string
	Kind    string
	NoTTL   bool `json:"no_ttl"`
	Holders []struct{ Identity string }
	Waiters []struct{ Identity string }
}

// get locks shows what Inspect returns, for all kinds and for keys of other programs.
func TestGetLocks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	e.wait("worker-2", "orders")
	rw, err := e.client.RWMutex("catalogue", "reader-1", lockcore.LeaseConfig{})
	testenv.Must(t, err)
	_, err = rw.TryRLock(t.Context())
	testenv.Must(t, err)
	e.set("noonlock:{foreign}:lock", "sesame")
	testenv.Must(t, e.Raw.HSet(t.Context(), "noonlock:{hash}:lock", "sesame", "sesame").Err())

	for _, l := range decode[[]lockJSON](t, e.must("get", "locks", "-o", "json")) {
		seen, err := e.client.Inspect(t.Context(), l.Name)
		testenv.Must(t, err)
		if l.Kind != string(seen.Kind) || l.NoTTL != seen.NoTTL || len(l.Holders) != len(seen.Holders) || len(l.Waiters) != len(seen.Waiters) {
			t.Errorf("get %+v, Inspect %+v", l, seen)
		}
	}
	if out := e.must("get", "locks", "-o", "name"); out != "catalogue\nforeign\nhash\norders\n" {
		t.Errorf("names: %q", out)
	}
	one := decode[lockJSON](t, e.must("get", "lock", "orders", "-o", "json"))
	if one.Holders[0].Identity != "worker-1" || one.Waiters[0].Identity != "worker-2" {
		t.Errorf("orders: %+v", one)
	}
	table := e.must("get", "locks")
	for _, want := range []string{"NAME ", "orders ", "worker-1 ", "worker-1 (reads)", "another program", "never"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not contain %q:\n%s", want, table)
		}
	}
	if yaml := e.must("get", "locks", "catalogue", "-o", "yaml"); !strings.HasPrefix(yaml, "name: catalogue\nkind: readwrite\nholders:\n") {
		t.Errorf("YAML:\n%s", yaml)
	}
	for _, out := range []string{table, e.must("get", "locks", "-o", "json"), e.must("describe", "lock", "foreign")} {
		if strings.Contains(out, "sesame") {
			t.Errorf("a value of another program is printed:\n%s", out)
		}
	}
	if out := e.must("describe", "lock", "orders"); !strings.Contains(out, "worker-2") || !strings.Contains(out, "TTL") {
		t.Errorf("describe:\n%s", out)
	}
	if out := e.must("describe", "lock", "foreign"); !strings.Contains(out, "never") || !strings.Contains(out, "another program wrote this key") {
		t.Errorf("describe:\n%s", out)
	}
}

// get elections shows what Record and Candidates return.
func TestGetElections(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	elector := func(identity string) *election.LeaderElector {
		le, err := election.NewLeaderElector(e.Client(identity), "board", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) { <-ctx.Done() }, OnStoppedLeading: func() {},
		}, election.Config{Metadata: map[string]string{"version": "7"}})
		testenv.Must(t, err)
		return le
	}
	a, b := elector("a"), elector("b")
	stop := e.background(a.Run)
	e.Until("a leads", a.IsLeader)
	stopB := e.background(b.Run)
	e.Until("b waits", func() bool { return e.waiters("election/board") == 1 })
	type electionJSON struct {
		Name, Leader string
		Last         string `json:"last_leader"`
		Term, Token  uint64
		Candidates   []struct{ Identity string }
		Metadata     map[string]string
	}
	got := decode[electionJSON](t, e.must("get", "election", "board", "-o", "json"))
	board, err := election.NewElection(e.client, "board")
	testenv.Must(t, err)
	r, err := board.Record(t.Context())
	testenv.Must(t, err)
	if got.Name != "board" || got.Leader != "a" || got.Term != r.Term || got.Token != r.Token || len(got.Candidates) != 1 || got.Candidates[0].Identity != "b" || got.Metadata["version"] != "7" {
		t.Errorf("get %+v, Record %+v", got, r)
	}
	if out := e.must("describe", "election", "board"); !strings.Contains(out, "Leader:") || !strings.Contains(out, "version 7") || !strings.Contains(out, "  b ") {
		t.Errorf("describe:\n%s", out)
	}
	stopB()
	stop()
	got = decode[[]electionJSON](t, e.must("get", "elections", "-o", "json"))[0]
	if got.Leader != "" || got.Term != r.Term || len(got.Candidates) != 0 {
		t.Errorf("after its end: %+v", got)
	}
	if out := e.must("describe", "election", "board"); !strings.Contains(out, "no leader") || !strings.Contains(out, "Resigned") {
		t.Errorf("describe:\n%s", out)
	}
}

// get jobs and describe job show what Status and Runs return.
func TestGetJobs(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	begun, end := make(chan struct{}, 10), make(chan struct{})
	e.runs("draw", "@daily", func(ctx context.Context, _ singleton.Run) error {
		begun <- struct{}{}
		select {
		case <-end:
			return errors.New("no\nwinners\x1b[2J")
		case <-ctx.Done():
			return ctx.Err()
		}
	}, singleton.JobConfig{MaxAttempts: 1})
	if out := e.must("get", "jobs"); !strings.Contains(out, "idle") || strings.Contains(out, "ago") {
		t.Errorf("before the run:\n%s", out)
	}
	if out := e.must("trigger", "draw"); !strings.HasPrefix(out, "job draw triggered: trigger/20") {
		t.Errorf("trigger: %q", out)
	}
	<-begun
	j, err := singleton.NewJob(e.client, "draw")
	testenv.Must(t, err)
	want, err := j.Status(t.Context())
	testenv.Must(t, err)
	got := decode[singleton.Status](t, e.must("get", "job", "draw", "-o", "json"))
	got.Now = want.Now
	if a, b := toJSON(t, got), toJSON(t, want); a != b {
		t.Errorf("get %s, Status %s", a, b)
	}
	if out := e.must("describe", "job", "draw"); !strings.Contains(out, "running") || strings.Contains(out, "Last tick") || !strings.Contains(out, "  trigger/20") || !strings.Contains(out, "worker-1") || !strings.Contains(out, "0 0 * * *") {
		t.Errorf("describe:\n%s", out)
	}
	close(end)
	e.Until("it has ended", func() bool { return e.Raw.LLen(t.Context(), "noonlock:{job/draw}:runs").Val() == 1 })
	for _, args := range [][]string{{"history", "draw"}, {"describe", "job", "draw"}, {"history", "draw", "--since", "1h"}, {"history", "draw", "--since", "2020-01-01T00:00:00Z"}} {
		if out := e.must(args...); !strings.Contains(out, "failed") || !strings.Contains(out, "no; winners\\x1b[2J") || !strings.Contains(out, "trigger/20") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
	entries := e.history("draw")
	runs, err := j.Runs(t.Context(), 5)
	testenv.Must(t, err)
	if a, b := toJSON(t, entries), toJSON(t, runs); a != b {
		t.Errorf("history %s, Runs %s", a, b)
	}
	if r := e.noonctl("history", "draw", "--since", time.Now().Add(time.Hour).Format(time.RFC3339)); r.code != 0 || r.out != "" {
		t.Errorf("since later: %+v", r)
	}
	e.must("pause", "draw", "--reason", "no winners")
	if out := e.must("describe", "job", "draw"); !strings.Contains(out, "Paused by:") || strings.Count(out, ": no winners\n") != 1 || !strings.Contains(out, " pause ") {
		t.Errorf("describe:\n%s", out)
	}
	if out := e.must("history", "draw"); !strings.Contains(out, "Acts of operators:") || strings.Count(out, "no winners") != 1 || !strings.Contains(out, " pause ") {
		t.Errorf("history:\n%s", out)
	}
	acts := decode[struct{ Acts []singleton.Action }](t, e.must("history", "draw", "-o", "json", "--limit", "1")).Acts
	if len(acts) != 1 || acts[0].Verb != "pause" || acts[0].Reason != "no winners" || acts[0].By == "" {
		t.Errorf("the newest act: %+v", acts)
	}
	for range 10 {
		_, err := j.Trigger(t.Context())
		testenv.Must(t, err)
	}
	if out := e.must("describe", "job", "draw"); !strings.Contains(out, ": no winners") || strings.Contains(out, " pause ") {
		t.Errorf("describe after ten newer acts:\n%s", out)
	}
	if r := e.noonctl("get", "jobs"); r.code != 0 || !strings.Contains(r.out, "paused") || r.errOut != "Jobs that fail: 1 of 1.\n" {
		t.Errorf("after pause: %+v", r)
	}
	if out := e.must("resume", "draw"); out != "job draw resumed\n" {
		t.Errorf("resume: %q", out)
	}
	if r := e.noonctl("get", "jobs"); r.code != 0 || strings.Contains(r.out, "paused") {
		t.Errorf("after resume: %+v", r)
	}
}

// What an operator asks is one command: which jobs fail or run, in which order, since when a lock is held, and
// what was canceled and still runs.
func TestQuestionsOfAnOperator(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	if out := e.must("get", "locks"); !strings.Contains(out, "SINCE") || !strings.Contains(out, " ago") {
		t.Errorf("since when are they held?\n%s", out)
	}
	release := make(chan struct{})
	for name, outcome := range map[string]error{"fails": errors.New("no winners"), "good": nil, "slow": nil} {
		e.runs(name, "@daily", func(context.Context, singleton.Run) error {
			if name == "slow" {
				<-release // it ignores its context
			}
			return outcome
		}, singleton.JobConfig{MaxAttempts: 1})
		e.must("trigger", name)
	}
	t.Cleanup(func() { close(release) })
	names := func(args ...string) string {
		return strings.Join(strings.Fields(e.must(append([]string{"get", "jobs", "-o", "name"}, args...)...)), " ")
	}
	e.Until("two have ended", func() bool { return names("--sort", "attention") == "fails slow good" })
	e.Until("the third runs", func() bool { return names("--state", "running") == "slow" })
	for want, args := range map[string][]string{"fails": {"--state", "failing"}, "fails good slow": {"--sort", "name"}} {
		if got := names(args...); got != want {
			t.Errorf("get jobs %q: %q, want %q", args, got, want)
		}
	}
	e.fails(64, []string{`--state is "broken"`}, "get", "jobs", "--state", "broken")
	e.fails(64, []string{`--sort is "age"`}, "get", "jobs", "--sort", "age")
	if r := e.noonctl("get", "jobs"); r.errOut != "Jobs that fail: 1 of 3.\n" || !strings.Contains(r.out, "0 0 * * *") {
		t.Errorf("get jobs: %+v", r)
	}
	e.fails(66, []string{"nothing is running"}, "cancel", "fails")
	e.fails(66, []string{"2020-01-01T00:00:00Z is not open"}, "cancel", "slow", "--tick", "2020-01-01T00:00:00Z")
	e.fails(64, []string{`--tick is "now"`}, "cancel", "slow", "--tick", "now")
	if out := e.must("cancel", "slow", "--reason", "wrong input"); !strings.HasPrefix(out, "job slow canceled: trigger/20") {
		t.Errorf("cancel: %q", out)
	}
	if out := e.must("describe", "job", "slow"); !strings.Contains(out, "running, canceled\n") || !strings.Contains(out, ", reason wrong input") {
		t.Errorf("a canceled run that still runs:\n%s", out)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	testenv.Must(t, err)
	return string(text)
}

// rerun runs a failed tick again, once.
func TestRerun(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	ran := 0
	e.runs("draw", "@daily", func(context.Context, singleton.Run) error {
		if ran++; ran == 1 {
			return errors.New("no winners")
		}
		return nil
	}, singleton.JobConfig{MaxAttempts: 1})
	e.must("trigger", "draw")
	history := func() []singleton.HistoryEntry { return e.history("draw") }
	e.Until("it has failed", func() bool { return len(history()) == 1 })
	tick := history()[0].Name()
	if out := e.must("rerun", "draw", "--tick", tick, "--reason", "mended"); !strings.HasSuffix(out, "runs again\n") {
		t.Errorf("rerun: %q", out)
	}
	e.Until("it has succeeded", func() bool { return history()[0].Outcome == singleton.OutcomeSucceeded })
	e.fails(1, []string{"the tick has succeeded"}, "rerun", "draw", "--tick", tick)
	e.fails(66, []string{"there is no 2020-01-01T00:00:00Z in the history"}, "rerun", "draw", "--tick", "2020-01-01T00:00:00Z")
	e.fails(66, []string{"in the history"}, "rerun", "draw", "--tick", strings.TrimPrefix(tick, "trigger/"))
	e.fails(64, []string{`--tick is "yesterday"`}, "rerun", "draw", "--tick", "yesterday")
	e.fails(64, []string{"--tick"}, "rerun", "draw")
	e.fails(64, []string{"Operator.Reason"}, "rerun", "draw", "--tick", tick, "--reason", strings.Repeat("x", 201))
	e.fails(66, []string{"there is no job"}, "rerun", "x", "--tick", tick)
}

// get daemons shows which replica runs each daemon, also if none does.
func TestGetDaemons(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	d, err := singleton.NewDaemonRunner(e.client, "feed", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, singleton.DaemonConfig{})
	testenv.Must(t, err)
	stop := e.background(d.Run)
	e.Until("it runs", func() bool { return e.Exists("noonlock:{job/daemon/feed}:lock") })
	for _, args := range [][]string{{"get", "daemons"}, {"get", "daemon", "feed"}, {"describe", "daemon", "feed"}} {
		if out := e.must(args...); !strings.Contains(out, "feed") || !strings.Contains(out, "worker-1") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
	stop()
	for _, args := range [][]string{{"get", "daemons"}, {"get", "daemon", "feed"}} {
		if out := e.must(args...); !strings.Contains(out, "feed") || strings.Contains(out, "worker-1") {
			t.Errorf("%q after its end:\n%s", args, out)
		}
	}
	if out := e.must("describe", "daemon", "feed"); !strings.Contains(out, "no replica runs it") {
		t.Errorf("describe after its end:\n%s", out)
	}
}

// An unknown name has its own exit code.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	e.hold("orders/eu-west-1")
	e.hold("billing")
	e.runs("draw", "@daily", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
	e.fails(66, []string{`no lock "ordres" is held`}, "get", "lock", "ordres")
	e.fails(66, []string{`no lock "Orders" is held`}, "describe", "lock", "Orders")
	e.fails(66, []string{`no lock "eu-west" is held`}, "release", "eu-west", "--yes")
	for _, verb := range [][]string{{"pause"}, {"resume"}, {"trigger"}, {"history"}, {"get", "job"}, {"describe", "job"}} {
		e.fails(66, []string{`there is no job "darw"`}, append(verb, "darw")...)
	}
	e.fails(66, []string{`there is no election "x"`}, "get", "election", "x")
	e.fails(66, []string{`there is no election "x"`}, "describe", "election", "x")
	e.fails(66, []string{`there is no daemon "x"`}, "get", "daemon", "x")
	e.fails(66, []string{`there is no daemon "x"`}, "describe", "daemon", "x")
	// What exists is printed all the same.
	if r := e.noonctl("get", "locks", "orders", "nope"); r.code != 66 || !strings.Contains(r.out, "orders") {
		t.Errorf("a known and an unknown name: %+v", r)
	}
	if r := e.noonctl("get", "job", "nope", "-o", "json"); r.code != 66 || r.out != "" {
		t.Errorf("an unknown name as JSON: %+v", r)
	}
}

// A job that cannot be read does not hide the others.
func TestBrokenThings(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, job := range []string{"first", "zebra"} {
		e.runs(job, "@daily", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
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

// Wrong arguments are refused before anything is sent.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	const nowhere = "redis://127.0.0.1:1"
	for _, test := range []struct {
		url  string
		args []string
		want string
	}{
		{"", []string{"get", "locks"}, "--redis"},
		{"http://x", []string{"get", "locks"}, "redisurl: "},
		{"redis://u:sesame@host:port", []string{"get", "locks"}, "redisurl: "},
		{nowhere, []string{"get", "locks", "-o", "xml"}, "--output"},
		{nowhere, []string{"get", "locks", "--bogus"}, "--bogus"},
		{nowhere, []string{"get", "locks", "--timeout", "0"}, "--timeout"},
		{nowhere, []string{"get", "locks", "--prefix", "a b"}, "Config.Prefix"},
		{nowhere, []string{"get", "locks", "a b"}, "name"},
		{nowhere, []string{"get", "jobs", "a{b"}, "name"},
		{nowhere, []string{"get", "jobs", strings.Repeat("x", 300)}, "name"},
		{nowhere, []string{"history", "draw", "--limit", "0"}, "--limit"},
		{nowhere, []string{"history", "draw", "--since", "yesterday"}, "--since"},
		{nowhere, []string{"history"}, "JOB"},
		{nowhere, []string{"pause", "a", "b"}, "JOB"},
		{nowhere, []string{"bogus"}, "bogus"},
	} {
		r := run(t.Context(), test.url, test.args...)
		check(t, r, 64, []string{test.want}, test.args)
		if strings.Contains(r.errOut, "sesame") {
			t.Errorf("a password is printed: %s", r.errOut)
		}
	}
}

// If Redis is away, a command fails after --timeout with one sentence and its own exit code.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.Real.Pause()
	for url, want := range map[string]string{
		"redis://127.0.0.1:1": "connection refused", e.url: "",
		"redis+cluster://127.0.0.1:1":             "connection refused",
		"redis+sentinel://127.0.0.1:1?master=who": "",
	} {
		for _, args := range [][]string{{"get", "locks"}, {"get", "locks", "x"}, {"describe", "job", "x"}, {"pause", "x"}, {"release", "x", "--yes"}} {
			t.Run(url+" "+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				r := run(t.Context(), url, append(args, "--timeout", "3s")...)
				check(t, r, 69, []string{"Redis at ", "did not answer within 3s: ", want}, args)
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
	for _, kind := range []string{"locks", "elections", "jobs", "daemons"} {
		check(t, run(t.Context(), one, "get", kind), 1, []string{"one of the 2 primaries of a cluster", "redis+cluster"}, []string{kind})
		if r := run(t.Context(), "redis+cluster://"+strings.Join(cluster.Addrs(), ","), "get", kind); r.code != 0 {
			t.Errorf("get %s: %+v", kind, r)
		}
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

// A missing right and a wrong password are named.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	for name, rules := range map[string][]string{"noscan": {"~*", "+@all", "-scan"}, "noscripts": {"~*", "+@all", "-evalsha"}, "nokeys": {"~other*", "+@all"}} {
		e.As(name, rules...)
	}
	as := func(user, password string) string { return "redis://" + user + ":" + password + "@" + e.Real.Addr() }
	for _, test := range []struct {
		url, want string
		args      []string
	}{
		{as("noscan", "secret"), "scan", []string{"get", "locks"}},
		{as("noscripts", "secret"), "evalsha", []string{"get", "locks", "orders"}},
		{as("nokeys", "secret"), "NOPERM", []string{"release", "orders", "--yes"}},
		{as("noscan", "sesame"), "WRONGPASS", []string{"get", "jobs"}},
	} {
		r := run(t.Context(), test.url, test.args...)
		check(t, r, 77, []string{test.want}, test.args)
		if strings.Contains(r.errOut, "sesame") {
			t.Errorf("a password is printed: %s", r.errOut)
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
		e.hold(name)
	}
	e.client = e.Client(odd)
	e.runs(odd, "@yearly", func(context.Context, singleton.Run) error { return errors.New(odd + "\x1b[2J\n\u2028") }, singleton.JobConfig{MaxAttempts: 1})
	e.hold("ours")
	e.must("trigger", odd)
	e.Until("it has failed", func() bool { return len(e.history(odd)) == 1 })
	names = append(names, "ours")
	slices.Sort(names)
	for _, decoder := range []func(args ...string) (all []lockJSON){
		func(args ...string) []lockJSON {
			return decode[[]lockJSON](t, e.must(append(args, "-o", "json")...))
		},
		func(args ...string) (all []lockJSON) {
			testenv.Must(t, yaml.Unmarshal([]byte(e.must(append(args, "-o", "yaml")...)), &all))
			return all
		},
	} {
		var got []string
		for _, l := range decoder("get", "locks") {
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
	for _, args := range [][]string{
		{"get", "locks"},
		{"get", "lock", odd},
		{"get", "locks", "-o", "name"},
		{"get", "locks", "-o", "json"},
		{"get", "locks", "-o", "yaml"},
		{"get", "all"},
		{"get", "all", "-o", "name"},
		{"get", "all", "-o", "json"},
		{"get", "all", "-o", "yaml"},
		{"get", "job/" + odd},
		{"describe", "lock", odd},
		{"describe", "lock", "ours"},
		{"describe", "job", odd},
		{"describe", "job", odd + "x"},
		{"describe", odd + "/x"},
		{odd},
		{"history", odd},
		{"history", odd, "-o", "json"},
		{"history", odd, "-o", "yaml"},
		{"history", odd, "--since", "1ns"},
		{"verify", odd, "-o", "yaml"},
		{"release", odd},
		{"release", odd, "--yes"},
		{"pause", odd},
		{"trigger", odd, "--prefix", odd},
		{"resign", odd},
		{"get", "locks", "--sort", odd},
		{"get", "jobs", "--sort", odd},
		{"get", "locks", "-o", odd},
		{"cancel", odd, "--tick", odd},
		{"get", "daemons", "--prefix", odd},
		{"get", "locks", "--redis", "redis://" + odd},
	} {
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

// The habits of kubectl: KIND/NAME, all, --no-headers and version.
func TestHabitsOfKubectl(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	for _, job := range []string{"draw", "poll"} {
		e.runs(job, "@daily", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
	}
	all := []string{"job/draw", "job/poll", "lock/orders"}
	for _, c := range []struct{ a, b string }{
		{"get job/draw", "get jobs draw"},
		{"get job/draw job/poll -o name", "get jobs draw poll -o name"},
		{"get job/draw lock/orders -o name", "get all job/draw lock/orders -o name"},
		{"get lock/orders --no-headers", "get locks orders --no-headers"},
		{"describe lock/orders", "describe lock orders"},
		{"describe job/draw", "describe job draw"},
	} {
		a, b := e.must(strings.Fields(c.a)...), e.must(strings.Fields(c.b)...)
		same := func(out string) string { return regexp.MustCompile(`[0-9.]+[hms]`).ReplaceAllString(out, "") }
		if same(a) != same(b) || a == "" {
			t.Errorf("%s:\n%s\n%s:\n%s", c.a, a, c.b, b)
		}
	}
	got := strings.Fields(e.must("get", "all", "-o", "name"))
	if slices.Sort(got); !slices.Equal(got, all) {
		t.Errorf("get all: %q", got)
	}
	table := e.must("get", "all")
	if !strings.HasPrefix(table, "NAME ") || !strings.Contains(table, "lock/orders   held    worker-1") {
		t.Errorf("get all:\n%s", table)
	}
	if _, rows, _ := strings.Cut(table, "\n"); strings.Count(e.must("get", "all", "--no-headers"), "\n") != strings.Count(rows, "\n") {
		t.Errorf("get all with titles:\n%s", table)
	}
	lists := decode[map[string][]struct{ Name, Job string }](t, e.must("get", "all", "-o", "json"))
	if len(lists) != 2 || lists["locks"][0].Name != "orders" || lists["jobs"][1].Job != "poll" {
		t.Errorf("get all: %+v", lists)
	}
	for want, args := range map[string]string{
		`the kind is "pod"`: "get pod/x", `the kind is "draw"`: "describe draw", "needs one name": "describe job/draw lock/orders",
		"describe job needs NAME": "describe job/draw job/poll", `the name is "draw"`: "get all draw", `the name is "pod/x"`: "get job/draw pod/x",
	} {
		e.fails(64, []string{want}, strings.Fields(args)...)
	}
	if r := e.noonctl("get", "job/draw", "lock/none"); r.code != 66 || !strings.Contains(r.out, "job/draw") {
		t.Errorf("a name that is unknown: %+v", r)
	}
	if r := e.noonctl("get", "all", "--prefix", "empty"); r.code != 0 || r.out != "" || !strings.HasPrefix(r.errOut, "There are no locks, elections, jobs or daemons ") {
		t.Errorf("nothing: %+v", r)
	}
	built := decode[map[string]string](t, e.must("version", "-o", "json"))
	if out := e.must("version"); built["go"] != runtime.Version() || built["version"] == "" || !strings.Contains(out, "Version:") || !strings.Contains(out, built["go"]) {
		t.Errorf("version: %v\n%s", built, out)
	}
}

// A pause, resume or cancel that changes nothing says that its reason is not recorded. A trigger says
// that no replica is there.
func TestActsWithoutAnEffect(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stop := e.runs("draw", "@daily", func(ctx context.Context, _ singleton.Run) error {
		<-ctx.Done()
		return ctx.Err()
	}, singleton.JobConfig{})
	says := func(want string, args ...string) {
		t.Helper()
		if r := e.noonctl(args...); r.code != 0 || r.out == "" || !strings.Contains(r.errOut, want) || want == "" && r.errOut != "" {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	says("this resume changed nothing, and its reason is not recorded; the former one stays\n", "resume", "draw", "--reason", "all is well")
	says("", "pause", "draw", "--reason", "no data")
	says("", "pause", "draw")
	says("this pause changed nothing, and its reason is not recorded; the former one stays, by ", "pause", "draw", "--reason", "holidays")
	says(": no data\n", "pause", "draw", "--reason", "holidays")
	says("", "trigger", "draw", "--reason", "now")
	stop()
	e.Until("no replica is there", func() bool { return strings.Contains(e.must("get", "jobs"), "no replicas") })
	says("no replica of the job is there; the run waits for one\n", "trigger", "draw")
}

// Completion lists the names that begin with what was typed, and nothing if Redis is away.
func TestCompletion(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.hold("orders")
	e.hold("orders-eu")
	e.hold("billing")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "locks", "ord"}, "orders\norders-eu\n:4\n"},
		{[]string{"get", "locks", "orders", ""}, "billing\norders-eu\n:4\n"},
		{[]string{"describe", "lock", "b"}, "billing\n:4\n"},
		{[]string{"release", "bi"}, "billing\n:4\n"},
		{[]string{"release", "billing", ""}, ":4\n"},
		{[]string{"pause", ""}, ":4\n"},
		{[]string{"get", "locks", "-o", ""}, "table\njson\nyaml\nname\n:4\n"},
	} {
		if r := e.noonctl(append([]string{"__complete"}, test.args...)...); r.code != 0 || r.out != test.want {
			t.Errorf("%q: %q", test.args, r.out)
		}
	}
	if r := run(t.Context(), "redis://127.0.0.1:1", "__complete", "get", "locks", ""); r.out != ":4\n" {
		t.Errorf("while Redis is away: %+v", r)
	}
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
