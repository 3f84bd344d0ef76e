package partition_test

import (
	"os"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, partition.ScriptFiles, partition.UseScripts))
}

// Short names for all tests.
var (
	must   = testenv.Must
	mustIs = testenv.MustIs
)

const (
	setName       = "shards"
	leaseDuration = 1500 * time.Millisecond // short because of the real server
)

// An env is the server that a test runs on.
type env struct{ *testenv.Env }

// onBoth runs a test in a bubble and on a real server.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{e}) })
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.InBubble(t, func(e *testenv.Env) { test(&env{e}) })
}

func onServer(t *testing.T) *env {
	t.Helper()
	return &env{testenv.OnServer(t)}
}

func key(part string) string { return "noonlock:{election/" + setName + "}:" + part }
