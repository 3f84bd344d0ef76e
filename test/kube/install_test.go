//go:build kube

package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFirstTry installs the chart with firstTry, and with the names of the images of this test. It
// follows the notes, which say how to upgrade: here from a chart with a value less. Then the node is drained.
func TestFirstTry(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "noonlock-try", restricted)
	older := t.TempDir()
	check(t, os.CopyFS(older, os.DirFS(chart)))
	for file, value := range map[string]string{"values.yaml": "revisionHistoryLimit: 10\n", "values.schema.json": `"revisionHistoryLimit",`} {
		file = filepath.Join(older, file)
		text, err := os.ReadFile(file)
		less := strings.Replace(string(text), value, "", 1)
		if err != nil || less == string(text) || os.WriteFile(file, []byte(less), 0o600) != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	l := c.install("lottery", "lottery", older, append(bundled(), "--set", "firstTry=true,image.tag=kube-test")...)

	// Before the first noon, helm test passes and says so.
	out := l.helm("test", "lottery", "--logs", "--timeout", patience.String())
	if !strings.Contains(out, "Phase:          Succeeded") || strings.Count(out, "POD LOGS: lottery-verify\n") != 1 || !strings.Contains(out, "no noon") {
		l.Errorf("helm test before the first noon:\n%s", out)
	}
	notes := l.helm("get", "notes", "lottery")
	upgrade := regexp.MustCompile(`(?m)^  helm -n \S+ (upgrade .*) --set-string lottery\.schedule='\* \* \* \* \*'$`).FindStringSubmatch(notes)
	if upgrade == nil || !strings.Contains(upgrade[1], "charts/lottery") {
		t.Fatalf("the notes do not say how to draw each minute:\n%s", notes)
	}
	arguments := strings.Fields(strings.Replace(upgrade[1], "charts/lottery", chart, 1))
	l.helm(append(arguments, "--set-string", "lottery.schedule=@every 1s", "--wait", "--timeout", patience.String())...)
	if limit := l.kubectl("get", "deployment", "lottery", "-o", "jsonpath={.spec.revisionHistoryLimit}"); limit != "10" {
		t.Errorf("the new value is %q after the upgrade, not its default", limit)
	}
	l.counts()
	l.drawn(5)

	// One node has all pods and the volumes of the release. Its drain ends, and the pods return.
	node := l.kubectl("get", "pods", "-l", l.replicas, "-o", "jsonpath={.items[0].spec.nodeName}")
	uncordon := func() { l.kubectl("uncordon", node) }
	t.Cleanup(uncordon)
	l.kubectl("drain", node, "--pod-selector=app.kubernetes.io/instance=lottery", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	uncordon()
	l.ready(l.replicas, 3)
	back := time.Now()
	l.await("noons after the drain", func() bool { return l.newest().After(back) })
	l.check(int(l.newest().Sub(l.first)/time.Second), time.Time{})
}

// TestNarrow installs a parent chart whose part is the lottery: with the longest name of a release,
// as a user of OpenShift, and with a quota of exactly the pods that it needs.
func TestNarrow(t *testing.T) {
	t.Parallel()
	const release = "abcdefghi-abcdefghi-abcdefghi-abcdefghi-abcdefghi-abc"
	c := newCluster(t, "noonlock-narrow", restricted)
	c.kubectl("create", "quota", "full", "--hard=pods=4") // three replicas and Redis
	parent := t.TempDir()
	check(t, os.CopyFS(filepath.Join(parent, "charts/lottery"), os.DirFS(chart)))
	for name, text := range map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: parent\nversion: 1.0.0\ndependencies:\n  - {name: lottery, version: 0.1.0, condition: lottery.enabled}\n",
		"values.yaml": "lottery:\n  enabled: true\n  firstTry: true\n" +
			"  podSecurityContext: {runAsUser: 1000680000, runAsGroup: 0, fsGroup: null, fsGroupChangePolicy: null}\n",
	} {
		check(t, os.WriteFile(filepath.Join(parent, name), []byte(text), 0o600))
	}
	var args []string
	for _, arg := range append(each1s(), bundled()...) {
		if arg != "--set" && arg != "--set-string" {
			values := strings.Split(arg, ",")
			for i := range values {
				values[i] = "lottery." + values[i]
			}
			arg = strings.Join(values, ",")
		}
		args = append(args, arg)
	}
	l := c.install(release, release+"-lottery", parent, args...)
	if ids := l.kubectl("get", "pods", "-l", l.replicas, "-o", "jsonpath={.items[*].spec.securityContext}"); strings.Count(ids, `"runAsGroup":0,"runAsNonRoot":true,"runAsUser":1000680000`) != 3 || strings.Contains(ids, "fsGroup") {
		t.Errorf("the replicas run as %s", ids)
	}
	l.counts()
	l.drawn(5)
	l.check(4, time.Time{})
	if names := strings.Fields(l.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}")); len(names) > 4 || !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "-redis-0") }) {
		t.Errorf("the pods are %v", names)
	}
}
