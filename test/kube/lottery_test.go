//go:build kube

package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	chart = "../../charts/lottery"

	noons   = 120
	winners = 10

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
		page, err := l.get(p.Metadata.Name, "/metrics")
		if err != nil {
			continue // the pod may have been killed
		}
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

// check runs lottery verify, and also counts the draws itself. It returns the number of skipped
// noons, all of which must be before an instant.
func (l *lottery) check(n int, mayBeSkipped time.Time) (skipped int) {
	l.Helper()
	until := l.first.Add(time.Duration(n) * time.Second)
	since := "--since=" + l.first.Format(time.RFC3339)
	out, skipped := l.verified(mayBeSkipped, since, "--until="+until.Format(time.RFC3339))
	for _, want := range []string{fmt.Sprintf("%d noons", n), fmt.Sprintf("%d draws", n-skipped), fmt.Sprintf("%d successes", n-skipped)} {
		if !strings.Contains(out, want) {
			l.Errorf("verify does not say %q", want)
		}
	}
	out = l.kubectl("exec", "deploy/"+l.name, "--", "/lottery", "winners", since, "--until="+until.Format(time.RFC3339))
	drawn, by := map[string]map[string]bool{}, map[string]int{}
	var noon string
	for line := range strings.Lines(out) {
		if head, tail, ok := strings.Cut(line, "  drawn by "); ok {
			if noon = head; drawn[noon] != nil {
				l.Errorf("the noon %s was drawn twice", noon)
			}
			drawn[noon] = map[string]bool{}
			holder, _, _ := strings.Cut(tail, " ")
			by[holder]++
			continue
		}
		if fields := strings.Fields(line); len(fields) == 2 {
			drawn[noon][fields[1]] = true
		}
	}
	if len(drawn) != n-skipped {
		l.Errorf("%d noons have winners, want %d", len(drawn), n-skipped)
	}
	for noon, ids := range drawn {
		if len(ids) != winners {
			l.Errorf("the noon %s has %d different winners, want %d", noon, len(ids), winners)
		}
	}
	for _, holder := range slices.Sorted(maps.Keys(by)) {
		l.Logf("%s drew %d", holder, by[holder])
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

func TestLottery(t *testing.T) {
	t.Parallel()
	newCluster(t, "noonlock-test-hand")
	c := newCluster(t, "noonlock-test", restricted)
	c.kubectl("create", "secret", "generic", "redis", `--from-literal=password=a "b'%/@:`)
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), bundled(), []string{
		"--set", "redis.enabled=true,redis.auth.existingSecret=redis,database.sqlite.enabled=true",
		"--set-file", "entrants.inline=../../examples/lottery/entrants.csv",
	})...)
	l.counts()

	l.disturbed()
	if t.Failed() {
		return
	}
	l.withoutRedis()
	if t.Failed() {
		return
	}
	l.tested()
}

// disturbed disturbs the pods in all ways within the counted noons.
func (l *lottery) disturbed() {
	l.drawn(10)
	l.kubectl("rollout", "restart", "deployment/demo-lottery")
	l.kubectl("rollout", "status", "deployment/demo-lottery", "--timeout", patience.String())
	l.Log("rolled out")

	l.drawn(35)
	// As kubectl drain does. With SQLite, a budget would block it.
	for _, p := range l.ready(l.replicas, 3) {
		if err := l.evict(p.Metadata.Name); err != nil {
			l.Errorf("the eviction of %s is refused: %v", p.Metadata.Name, err)
		}
	}
	l.Log("evicted all pods")

	pods := l.ready(l.replicas, 3)
	l.drawn(55)
	victim := pods[0].Metadata.Name
	l.Log(l.hand("kill", victim, "/lottery"))
	l.dies(victim, "Error", 137)

	l.drawn(75)
	victim = pods[1].Metadata.Name
	l.Log(l.hand("oom", victim, "/lottery"))
	l.dies(victim, "OOMKilled", 137)

	l.drawn(90)
	l.helm("upgrade", "demo", chart, "--reset-then-reuse-values", "--set", "podAnnotations.revision=two", "--wait", "--timeout", patience.String())
	l.drawn(100)
	l.helm("rollback", "demo", "1", "--wait", "--timeout", patience.String())
	l.Log("rolled back to revision 1")

	l.drawn(noons + 5)
	l.ready(l.replicas, 3)
	l.check(noons, time.Time{})
}

func (l *lottery) evict(pod string) error {
	_, err := l.try(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod, l.namespace),
		"kubectl", "create", "--raw", "/api/v1/namespaces/"+l.namespace+"/pods/"+pod+"/eviction", "-f", "-")
	return err
}

// dies waits until the container has died for the reason and runs again.
func (l *lottery) dies(name, reason string, code int) {
	l.Helper()
	l.await(name+" to die and come back", func() bool {
		for _, p := range l.pods(l.replicas) {
			if p.Metadata.Name == name {
				gotReason, gotCode := p.died()
				return gotReason == reason && gotCode == code && p.ready()
			}
		}
		return false
	})
	l.Logf("%s died of %s and is ready again", name, reason)
}

// withoutRedis removes Redis for a while. No pod may restart, and readiness and metrics must report
// the outage. Afterwards the noons of that time are drawn late, or skipped in the ledger if there
// are too many, as the job's policy defines.
func (l *lottery) withoutRedis() {
	outage, err := time.ParseDuration(cmp.Or(os.Getenv("KUBE_OUTAGE"), "2m"))
	if err != nil {
		l.Fatalf("KUBE_OUTAGE: %v", err)
	}
	before := l.restartCounts()
	last := l.newest()
	l.kubectl("scale", "statefulset/demo-lottery-redis", "--replicas=0")
	l.await("no pod to be ready", func() bool {
		return !slices.ContainsFunc(l.pods(l.replicas), pod.ready)
	})
	gone := time.Now()
	over := time.NewTimer(outage)
	defer over.Stop()
	asked := 0
	for waiting := true; waiting; {
		for name := range before {
			page, err := l.get(name, "/livez")
			if err != nil || page != "ok" {
				l.Errorf("without Redis, /livez of %s says %q, %v", name, page, err)
			}
			if _, err := l.get(name, "/readyz"); err == nil {
				l.Errorf("without Redis, /readyz of %s says that it is ready", name)
			}
			if page, err := l.get(name, "/metrics"); err != nil || !strings.Contains(page, "noonlock_job_last_success_timestamp_seconds") {
				l.Errorf("without Redis, /metrics of %s: %v", name, err)
			}
			asked++
		}
		pause := time.NewTimer(5 * time.Second)
		select {
		case <-over.C:
			waiting = false
		case <-pause.C:
		}
		pause.Stop()
	}
	stale := time.Since(l.newest())
	if after := l.restartCounts(); !maps.Equal(before, after) {
		l.Errorf("restarts without Redis: %v, before %v", after, before)
	}
	l.Logf("Redis was away for %s: asked pods %d times; restarts %v; the metric says that the newest noon is %s old",
		time.Since(gone).Round(time.Second), asked, l.restartCounts(), stale.Round(time.Second))
	if stale < outage {
		l.Errorf("the metric says that the newest noon is %s old after %s without Redis", stale, outage)
	}

	again := time.Now()
	l.kubectl("scale", "statefulset/demo-lottery-redis", "--replicas=1")
	l.ready(l.replicas, 3)
	back := time.Now()
	l.await("the missed noons and more", func() bool { return l.newest().After(back) })
	l.Logf("caught up %s after the pods were ready; the last noon before was %s", time.Since(back).Round(100*time.Millisecond), last.Format(time.TimeOnly))
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
	before := l.restartCounts()
	l.helm("upgrade", "demo", chart, "--reset-then-reuse-values", "--wait", "--timeout", patience.String(),
		"--set", "verify.since="+l.first.Format(time.RFC3339), "--set", "verify.until="+l.first.Add(noons*time.Second).Format(time.RFC3339))
	if after := l.restartCounts(); !maps.Equal(before, after) {
		l.Errorf("another range to verify made other pods: %v, before %v", after, before)
	}
	out := l.helm("test", "demo", "--logs", "--timeout", patience.String())
	l.Logf("\n%s", out)
	if !strings.Contains(out, "Phase:          Succeeded") || !strings.Contains(out, fmt.Sprintf("%d draws", noons)) {
		l.Error("helm test does not say that all was verified")
	}
	// A range without noons fails.
	l.helm("upgrade", "demo", chart, "--reset-then-reuse-values", "--wait", "--set", "verify.since=2026-01-01,verify.until=2026-01-01T00:00:10Z")
	if out, err := l.try("", l.helmPath, "-n", l.namespace, "test", "demo", "--timeout", patience.String()); err == nil {
		l.Errorf("helm test of a range without draws succeeds:\n%s", out)
	}
}

// follower reads a pod's log during and after the pod's life.
type follower struct {
	cmd   *exec.Cmd
	lines chan map[string]any
}

func (c *cluster) follow(pod string) *follower {
	c.Helper()
	f := &follower{cmd: exec.Command("kubectl", "-n", c.namespace, "logs", "-f", pod), lines: make(chan map[string]any, 10_000)}
	out, err := f.cmd.StdoutPipe()
	check(c, err)
	check(c, f.cmd.Start())
	go func() {
		defer close(f.lines)
		for decoder := json.NewDecoder(out); ; {
			var line map[string]any
			if decoder.Decode(&line) != nil {
				return
			}
			f.lines <- line
		}
	}()
	c.Cleanup(func() {
		_ = f.cmd.Process.Kill() // the process may have ended
		for range f.lines {
		}
		_ = f.cmd.Wait()
	})
	return f
}

// line waits for a message and returns its line.
func (c *cluster) line(f *follower, msg string) map[string]any {
	c.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-f.lines:
			if !ok {
				c.Fatalf("a pod's log ended without %q", msg)
			}
			if line["msg"] == msg {
				return line
			}
		case <-timer.C:
			c.Fatalf("no pod said %q", msg)
		}
	}
}
