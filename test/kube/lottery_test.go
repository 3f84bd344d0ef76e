//go:build kube

package kube

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	chart = "../../charts/lottery"

	// caughtUp is the number of the newest noons that are drawn late after an outage. Older noons are
	// skipped, as singleton.CatchUpAll defines.
	caughtUp = 100
)

// lottery is a release of the chart with one noon per second.
type lottery struct {
	*cluster
	release  string
	name     string    // of the Deployment
	replicas string    // the selector of its pods
	first    time.Time // the first noon that is counted
}

// install installs a release of the chart, which may be part of another one.
func (c *cluster) install(release, name, chart string, args ...string) *lottery {
	c.Helper()
	c.Log(c.helm(append([]string{"install", release, chart, "--wait", "--timeout", patience.String()}, args...)...))
	l := &lottery{
		cluster: c, release: release, name: name,
		replicas: "app.kubernetes.io/instance=" + release + ",app.kubernetes.io/component=replica",
	}
	l.ready(l.replicas, 3)
	return l
}

// each1s are the values of a lottery that draws each second.
func each1s() []string {
	return []string{
		"--set", "image.tag=kube-test",
		"--set-string", "lottery.schedule=@every 1s",
		"--set", "lottery.lease=2s,lottery.drainSeconds=5,terminationGracePeriodSeconds=20,resources.limits.memory=96Mi",
	}
}

// bundled are the values of the bundled Redis and SQLite on this cluster.
func bundled() (args []string) {
	if class := os.Getenv("KUBE_STORAGE_CLASS"); class != "" {
		args = append(args, "--set", "redis.storage.storageClass="+class+",database.sqlite.storageClass="+class)
	}
	colon := strings.LastIndex(redisImage, ":")
	return append(args, "--set", "redis.image.repository="+redisImage[:colon]+",redis.image.tag="+redisImage[colon+1:])
}

// counts waits for a first noon. The noons after it are counted.
func (l *lottery) counts() {
	l.Helper()
	l.await("a first noon", func() bool { return l.newest().Unix() > 0 })
	l.first = l.newest().Add(2 * time.Second)
}

// metric returns the greatest value of the series among the pods, 0 if there is none.
func (l *lottery) metric(series string) (greatest float64) {
	l.Helper()
	for _, p := range l.pods(l.replicas) {
		_, page := l.get("pods/" + p.Metadata.Name + ":8080/proxy/metrics") // nothing if the pod was killed
		for line := range strings.Lines(page) {
			if rest, ok := strings.CutPrefix(line, series+" "); ok {
				value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				check(l, err)
				greatest = max(greatest, value)
			}
		}
	}
	return greatest
}

// newest returns the newest drawn noon that a replica reports.
func (l *lottery) newest() time.Time {
	l.Helper()
	return time.Unix(int64(l.metric(`noonlock_job_last_success_timestamp_seconds{name="lottery"}`)), 0).UTC()
}

// drawn waits until the noon was drawn, counted from the first one.
func (l *lottery) drawn(n int) {
	l.Helper()
	l.await(fmt.Sprintf("noon %d", n), func() bool { return !l.newest().Before(l.first.Add(time.Duration(n-1) * time.Second)) })
	l.Logf("noon %d is drawn", n)
}

// finding is a line of lottery verify that reports a problem.
var finding = regexp.MustCompile(`(?m)^([a-z]+) +(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [+-]\d\d:\d\d)  (.*)$`)

// verified runs lottery verify. Noons before an instant may be skipped in the ledger; verified
// returns their number. Any other problem fails the test.
func (l *lottery) verified(mayBeSkipped time.Time, span ...string) (out string, skipped int) {
	l.Helper()
	out, err := l.try("", "kubectl", append([]string{"-n", l.namespace, "exec", "deploy/" + l.name, "--", "/lottery", "verify"}, span...)...)
	l.Logf("\n%s", out)
	for _, line := range finding.FindAllStringSubmatch(out, -1) {
		at, errAt := time.Parse("2006-01-02 15:04:05 -07:00", line[2])
		if errAt != nil {
			l.Fatal(errAt)
		}
		if line[1] == "skipped" && at.Before(mayBeSkipped) {
			skipped++
			continue
		}
		l.Errorf("verify: %s", line[0])
	}
	if err != nil && skipped == 0 {
		l.Errorf("verify: %v", err)
	}
	return out, skipped
}

// check runs lottery verify for n noons. It returns the number of skipped noons, all of which must be before an instant.
func (l *lottery) check(n int, mayBeSkipped time.Time) (skipped int) {
	l.Helper()
	until := l.first.Add(time.Duration(n) * time.Second)
	out, skipped := l.verified(mayBeSkipped, "--since="+l.first.Format(time.RFC3339), "--until="+until.Format(time.RFC3339))
	for _, want := range []string{fmt.Sprintf("%d noons", n), fmt.Sprintf("%d draws", n-skipped), fmt.Sprintf("%d successes", n-skipped)} {
		if !strings.Contains(out, want) {
			l.Errorf("verify does not say %q", want)
		}
	}
	return skipped
}

func (l *lottery) restartCounts() map[string]int {
	l.Helper()
	counts := map[string]int{}
	for _, p := range l.pods(l.replicas) {
		counts[p.Metadata.Name] = p.restarts()
	}
	return counts
}

// TestLottery installs the chart with firstTry, the longest name of a release and the user of OpenShift. It follows the
// notes, which say how to upgrade: here from a chart with a value less, to a noon per second. Then the node is drained,
// a replica is killed, and an upgrade is rolled back. Finally, Redis is away for a while.
func TestLottery(t *testing.T) {
	t.Parallel()
	const release = "abcdefghi-abcdefghi-abcdefghi-abcdefghi-abcdefghi-abc"
	newCluster(t, "noonlock-test-hand")
	c := newCluster(t, "noonlock-test", restricted)
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
	l := c.install(release, release+"-lottery", older, append(bundled(), "--set", "firstTry=true,image.tag=kube-test",
		"--set", "podSecurityContext.runAsUser=1000680000,podSecurityContext.runAsGroup=0,podSecurityContext.fsGroup=null,podSecurityContext.fsGroupChangePolicy=null")...)
	if out := l.test(); !strings.Contains(out, "no noon") {
		l.Errorf("helm test before the first noon:\n%s", out)
	}
	notes := l.helm("get", "notes", release)
	upgrade := regexp.MustCompile(`(?m)^  helm -n \S+ (upgrade .*) --set-string lottery\.schedule='\* \* \* \* \*'$`).FindStringSubmatch(notes)
	if upgrade == nil || !strings.Contains(upgrade[1], "charts/lottery") {
		t.Fatalf("the notes do not say how to draw each minute:\n%s", notes)
	}
	arguments := strings.Fields(strings.Replace(upgrade[1], "charts/lottery", chart, 1))
	l.helm(slices.Concat(arguments, each1s(), []string{"--wait", "--timeout", patience.String()})...)
	if limit := l.kubectl("get", "deployment", l.name, "-o", "jsonpath={.spec.revisionHistoryLimit}"); limit != "10" {
		t.Errorf("the new value is %q after the upgrade, not its default", limit)
	}
	if ids := l.kubectl("get", "pods", "-l", l.replicas, "-o", "jsonpath={.items[*].spec.securityContext}"); !strings.Contains(ids, `"runAsGroup":0,"runAsNonRoot":true,"runAsUser":1000680000`) || strings.Contains(ids, "fsGroup") {
		t.Errorf("the replicas run as %s", ids)
	}
	l.counts()
	l.disturbed()
	if !t.Failed() {
		l.withoutRedis()
	}
	if !t.Failed() {
		l.tested()
	}
}

// test runs helm test, which must succeed.
func (l *lottery) test() string {
	l.Helper()
	out := l.helm("test", l.release, "--logs", "--timeout", patience.String())
	if !strings.Contains(out, "Phase:          Succeeded") || strings.Count(out, "POD LOGS: ") != 1 {
		l.Errorf("helm test:\n%s", out)
	}
	return out
}

// disturbed disturbs the pods in all ways within the counted noons.
func (l *lottery) disturbed() {
	l.drawn(5)
	// One node has all pods and the volumes of the release. Its drain ends, and the pods return.
	node := l.kubectl("get", "pods", "-l", l.replicas, "-o", "jsonpath={.items[0].spec.nodeName}")
	uncordon := func() { l.kubectl("uncordon", node) }
	l.Cleanup(uncordon)
	l.kubectl("drain", node, "--pod-selector=app.kubernetes.io/instance="+l.release, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String())
	uncordon()
	victim := l.ready(l.replicas, 3)[0].Metadata.Name
	l.Log("the node was drained")

	l.again()
	l.kill(victim, "/lottery")
	l.await(victim+" to come back", func() bool {
		return slices.ContainsFunc(l.pods(l.replicas), func(p pod) bool { return p.Metadata.Name == victim && p.restarts() == 1 && p.ready() })
	})

	l.again()
	l.helm("upgrade", l.release, chart, "--reset-then-reuse-values", "--set", "podAnnotations.revision=two", "--wait", "--timeout", patience.String())
	l.again()
	l.helm("rollback", l.release, "2", "--wait", "--timeout", patience.String())
	l.Log("rolled back to revision 2")

	l.again()
	l.ready(l.replicas, 3)
	l.check(l.count(), time.Time{})
}

// again waits for a noon that is due from now on.
func (l *lottery) again() {
	l.Helper()
	from := time.Now()
	l.await("the next noon", func() bool { return l.newest().After(from) })
}

// count returns the number of the counted noons that are due.
func (l *lottery) count() int { return int(l.newest().Sub(l.first) / time.Second) }

// withoutRedis removes Redis for a while. No pod may restart, and readiness and metrics must report
// the outage. Afterwards the noons of that time are drawn late, or skipped in the ledger if there
// are too many, as the job's policy defines.
func (l *lottery) withoutRedis() {
	outage, err := time.ParseDuration(cmp.Or(os.Getenv("KUBE_OUTAGE"), "1m"))
	if err != nil {
		l.Fatalf("KUBE_OUTAGE: %v", err)
	}
	before := l.restartCounts()
	redis := strings.TrimSpace(l.kubectl("get", "statefulsets", "-o", "name"))
	l.kubectl("scale", redis, "--replicas=0")
	l.await("no pod to be ready", func() bool {
		return !slices.ContainsFunc(l.pods(l.replicas), pod.ready)
	})
	gone := time.Now()
	over := time.NewTimer(outage)
	defer over.Stop()
	for waiting := true; waiting; {
		for name := range before {
			for path, want := range map[string]int{"livez": http.StatusOK, "readyz": http.StatusInternalServerError, "metrics": http.StatusOK} {
				if code, page := l.get("pods/" + name + ":8080/proxy/" + path); code != want {
					l.Errorf("without Redis, /%s of %s: %d %s", path, name, code, page)
				}
			}
		}
		select {
		case <-over.C:
			waiting = false
		case <-time.After(5 * time.Second):
		}
	}
	stale := time.Since(l.newest())
	if after := l.restartCounts(); !maps.Equal(before, after) {
		l.Errorf("restarts without Redis: %v, before %v", after, before)
	}
	if stale < outage {
		l.Errorf("the metric says that the newest noon is %s old after %s without Redis", stale, outage)
	}

	again := time.Now()
	l.kubectl("scale", redis, "--replicas=1")
	l.ready(l.replicas, 3)
	back := time.Now()
	l.again()
	if after := l.restartCounts(); !maps.Equal(before, after) {
		l.Errorf("restarts after Redis was back: %v, before %v", after, before)
	}
	// Noons that are due after the catch-up has begun are drawn in time. Some noons may exceed the
	// limit in the meantime, so the comparison allows some slack.
	const slack = 10
	skipped := l.check(int(back.Sub(l.first)/time.Second), back.Add(-(caughtUp-slack)*time.Second))
	missed := int(again.Sub(gone) / time.Second)
	l.Logf("of at least %d missed noons %d are in the ledger as skipped", missed, skipped)
	if skipped < missed-caughtUp-slack {
		l.Errorf("of %d missed noons %d were skipped; more than the newest %d were drawn", missed, skipped, caughtUp)
	}
}

// tested runs `helm test` over a range in the past.
func (l *lottery) tested() {
	const noons = 5
	before := l.restartCounts()
	l.helm("upgrade", l.release, chart, "--reset-then-reuse-values", "--wait", "--timeout", patience.String(),
		"--set", "verify.since="+l.first.Format(time.RFC3339), "--set", "verify.until="+l.first.Add(noons*time.Second).Format(time.RFC3339))
	if after := l.restartCounts(); !maps.Equal(before, after) {
		l.Errorf("another range to verify made other pods: %v, before %v", after, before)
	}
	if out := l.test(); !strings.Contains(out, fmt.Sprintf("%d draws", noons)) {
		l.Errorf("helm test does not say that all was verified:\n%s", out)
	}
}
