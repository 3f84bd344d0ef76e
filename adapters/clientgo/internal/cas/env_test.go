package cas_test

import (
	"os"
	"testing"

	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, cas.ScriptFiles, cas.UseScripts))
}

func scripts() testenv.Scripts { return testenv.Scripts{Files: cas.ScriptFiles} }

// The header of each script declares exactly its inputs.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	scripts().CheckHeaders(t)
}

// Short names for all tests.
var (
	must      = testenv.Must
	mustIs    = testenv.MustIs
	mustNotBe = testenv.MustNotBe
)

// key is the key of the record in these tests.
const key = "noonlock:{clientgo/board}:record"

// An env is the server that a test runs on.
type env struct{ *testenv.Env }

// onBoth runs a test in a bubble and on a real server, in parallel.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{e}) })
}

// script matches writes in faults.
func (e *env) script() func([]string) bool { return scripts().Match(e, "record_put") }

// warm loads the script on the server, so that faults of requests apply to an EVALSHA that runs it.
func (e *env) warm() {
	e.Helper()
	must(e, e.Raw.ScriptLoad(e.Context(), wire.Naming(scripts().Source(e, "record_put"))).Err())
}
