package clientgo_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestMain(m *testing.M) {
	quiet()
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// quiet disables the logs of the dependencies, since the tests cause many errors.
func quiet() {
	klog.SetLogger(logr.Discard())
	redis.SetLogger(&testenv.DependencyLog)
}

const (
	lockName = "kube-system/board"
	// recordKey is the key of lockName's record.
	recordKey = "noonlock:{clientgo/" + lockName + "}:record"
)

// must is the short name for all tests.
var must = testenv.Must

// An env is the server that a test runs on.
type env struct{ *testenv.Env }

// onBoth runs a test in a bubble and on a real server, in parallel.
func onBoth(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.OnBoth(t, func(e *testenv.Env) { test(&env{e}) })
}

func inBubble(t *testing.T, test func(e *env)) {
	t.Helper()
	testenv.InBubble(t, func(e *testenv.Env) { test(&env{e}) })
}

func realEnv(t *testing.T) *env {
	t.Helper()
	return &env{testenv.OnServer(t)}
}

// client returns a client that is closed at the end of the test.
func (e *env) client(opt *redis.Options) *lockcore.Client {
	e.Helper()
	return e.ClientWith(opt, lockcore.Config{Identity: "client"})
}

// lock returns a Lock with an identity and its own client.
func (e *env) lock(identity string) *clientgo.Lock {
	e.Helper()
	return e.lockOn(e.client(e.Direct()), clientgo.Config{Identity: identity})
}

func (e *env) lockOn(c *lockcore.Client, cfg clientgo.Config) *clientgo.Lock {
	e.Helper()
	return testenv.Call(clientgo.NewLock(c, lockName, cfg)).Must(e)
}

// linked is lock with a separate network.
func (e *env) linked(identity string) (*clientgo.Lock, *lockcoretest.Faults) {
	e.Helper()
	opt, f := e.Link()
	return e.lockOn(e.client(opt), clientgo.Config{Identity: identity}), f
}

// writes matches requests that write a record.
func writes(cmd []string) bool {
	return len(cmd) > 3 && strings.HasPrefix(cmd[0], "EVAL") && strings.HasSuffix(cmd[3], ":record")
}

// ler returns the record that an elector with an identity writes.
func ler(identity string, seconds int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: seconds}
}

// get reads the record, which must succeed.
func (e *env) get(l *clientgo.Lock) (*resourcelock.LeaderElectionRecord, string) {
	e.Helper()
	ler, raw, err := l.Get(e.Context())
	must(e, err)
	return ler, string(raw)
}

// holder returns the leader that l reads, "none" without a record.
func (e *env) holder(l *clientgo.Lock) string {
	e.Helper()
	ler, _ := e.get(l)
	return ler.HolderIdentity
}
