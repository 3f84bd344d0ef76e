package ledger_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, ledger.ScriptFiles, ledger.UseScripts))
}

func scripts() testenv.Scripts { return testenv.Scripts{Files: ledger.ScriptFiles} }

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	scripts().CheckHeaders(t)
}

// An env is the server that a test runs on.
type env struct {
	*testenv.Env
	reader *singleton.Job // see job
}

func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.InBubble(t, func(e *testenv.Env) { test(&env{Env: e}) })
}

func realEnv(t *testing.T, conf ...string) *env {
	t.Helper()
	return &env{Env: testenv.OnServer(t, conf...)}
}

func (e *env) key(name, part string) string { return "noonlock:{" + name + "}:" + part }

// script matches requests of a script in faults.
func (e *env) script(name string) func([]string) bool {
	e.Helper()
	return scripts().Match(e, name)
}

// A timed is a test of scripts that is exact to the millisecond.
type timed struct {
	*env
	t   *testenv.Timed
	now time.Time
}

func toTheMillisecond(t *testing.T, test func(e *timed)) {
	t.Helper()
	scripts().ToTheMillisecond(t, func(e *testenv.Timed) { test(&timed{&env{Env: e.Env}, e, e.Now}) })
}

func (e *timed) ms(later time.Duration) string {
	return strconv.FormatInt(e.now.Add(later).UnixMilli(), 10)
}

func (e *timed) run(script string, keys []string, args ...any) string {
	e.Helper()
	return e.t.Run(script, keys, withChannels(script, args)...)
}

func (e *timed) wants(what, got, want string) {
	e.Helper()
	e.t.Wants(what, got, want)
}

func (e *timed) left(key string) string { return e.PTTL(key).String() }

const (
	minute, week = time.Minute, 7 * 24 * time.Hour
)

// allowed returns the rules for the keys of the prefix, the channel of each process, and
// those rights but one.
func allowed(rights []string, without string) []string {
	rules := []string{"~noonlock:*", "resetchannels", "&noonlock:ch:*"}
	for _, r := range rights {
		if r != without {
			rules = append(rules, "+"+r)
		}
	}
	return rules
}

// replicas returns the records of the replicas of the job draw.
func (e *env) replicas() map[string]string {
	all := map[string]string{}
	for field, text := range e.Raw.HGetAll(e.Context(), e.key("job/draw", "job")).Val() {
		if name, ok := strings.CutPrefix(field, "live:"); ok {
			all[name] = text
		}
	}
	return all
}
