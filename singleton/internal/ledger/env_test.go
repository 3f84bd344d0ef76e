package ledger_test

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

func TestMain(m *testing.M) {
	miniredis.DumpMaxLineLen = 1 << 20
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

// jobLedger makes a ledger of a job. Its TTL is long enough for a busy machine; a test that waits
// for the end of a lease sets a shorter one.
func (e *env) jobLedger(c *lockcore.Client, cfg ledger.Config) *ledger.Ledger {
	e.Helper()
	if cfg.Definition == "" {
		cfg.Definition, cfg.Schedule = "d", "s"
	}
	cfg.Lease = cmp.Or(cfg.Lease, new(testenv.TTL(10*time.Second)))
	l, err := ledger.New(c, "draw", cfg)
	testenv.Must(e, err)
	return l
}

// job returns the job of the ledgers, as operators see it.
func (e *env) job() *singleton.Job {
	e.Helper()
	if e.reader == nil {
		var err error
		e.reader, err = singleton.NewJob(e.Client("reader"), "draw")
		testenv.Must(e, err)
	}
	return e.reader
}

// runs returns the newest n entries of the history.
func (e *env) runs(n int) []singleton.HistoryEntry {
	e.Helper()
	runs, err := e.job().Runs(e.Context(), n)
	testenv.Must(e, err)
	return runs
}

// opened returns a ledger's state; a new ledger begins a minute ago.
func (e *env) opened(l *ledger.Ledger) ledger.State {
	e.Helper()
	now := e.Raw.Time(e.Context()).Val().UTC()
	st, err := l.Open(e.Context(), ledger.State{Last: now.Truncate(time.Second).Add(-time.Minute), Fresh: true})
	testenv.Must(e, err)
	return st
}
