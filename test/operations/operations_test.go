//go:build linux

// Package operations follows docs/OPERATIONS.md through outages. Its tests take commands, paths and metrics from the
// page, prepare the situation with real replicas of noonctl and lottery, and check what the page promises. They also run
// the small examples. It has tests only.
//
// A test names the row or the section, and the words around the command. So it fails if the page no longer has these
// words, and also if the page has a path that no test takes, or a command, a flag or a metric that does not exist.
package operations

import (
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// The sections of the page, and words that several tests look for.
const (
	symptoms = "Symptoms"
	alerts   = "Alerts"
	tokens   = "Tokens from a clock that was ahead"

	listNames = "`noonctl get locks`, `noonctl get elections` and `noonctl get jobs` list all names"
)

// TestPage follows docs/OPERATIONS.md.
func TestPage(t *testing.T) {
	t.Parallel()
	p := readPage(t)
	bin := build(t, "../../cmd/noonctl", "../../examples/lottery")
	persistent := []string{"appendonly yes", "appendfsync always"}
	all := []struct {
		name  string
		test  func(w *world)
		redis []string // lines of its configuration
	}{ // the slowest ones first
		{"database", database, nil},
		{"quorum", quorum, nil},
		{"quorum lists", lists, nil},
		{"ledger", ledger, nil},
		{"probes", probes, persistent},
		{"elections", elections, nil},
		{"lost data", lostData, nil},
		{"ignored cancellation", ignored, nil},
	}
	var passed atomic.Int64
	t.Run("situations", func(t *testing.T) { // returns when all of them have ended
		for _, situation := range all {
			t.Run(situation.name, func(t *testing.T) {
				t.Parallel()
				situation.test(newWorld(t, p, bin, situation.redis...))
				passed.Add(1)
			})
		}
	})
	for where, words := range elsewhere {
		for _, one := range words {
			p.take(t, where, one)
		}
	}
	if int(passed.Load()) == len(all) {
		p.requireAll(t, bin)
	}
}

// build builds programs, and returns their folder.
func build(t *testing.T, folders ...string) (bin string) {
	t.Helper()
	bin = t.TempDir()
	args := append([]string{"build", "-buildvcs=false", "-o", bin}, folders...)
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// elsewhere has what cannot run here, or what another test runs: TestFault31_NoMemoryForTheHistory deletes the key
// noonlock:history. test/kube runs the chart, "helm test" and "helm rollback" on a
// cluster, with scripts/kube-test.sh; .ci/run starts scripts/kube-ci.sh. The commands of kubectl
// show what Kubernetes knows, or run what runs here without it. "make test" runs this test.
var elsewhere = map[string][]string{
	"Choosing the Redis topology": {"for example after a restore, delete the key `noonlock:history` and restart the server or the clients"},
	"LotteryNoClaimant":           {"`kubectl get pods`, `kubectl describe`"},
	"NoonctlDown":                 {"`kubectl get pods`, `kubectl describe`"},
	alerts:                        {"which a pod has: `kubectl exec POD -- /lottery verify`"},
	"LotteryLeaseLost":            {"OOM kills (`kubectl describe pod`)"},
	"A new version of noonlock":   {"`helm rollback` is a rolling update too"},
	"Kubernetes tests":            {"`scripts/kube-test.sh` tests the charts on any cluster"},
	"Redis versions":              {"Test other servers with `NOONLOCK_REDIS_SERVER=PATH make test`"},
}

// fill replaces the placeholders of a command.
func fill(command string, placeholders ...string) string {
	return strings.NewReplacer(placeholders...).Replace(command)
}
