//go:build kube

package kube

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const noonctlChart = "../../charts/noonctl"

// noonctl installs a release of charts/noonctl that runs a script in the image of busybox, with more
// values in YAML. It returns the selector of the pods.
func (c *cluster) noonctl(release, script, values string) (selector string) {
	c.Helper()
	colon := strings.LastIndex(busyboxImage, ":")
	file := filepath.Join(c.TempDir(), "values.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
image: {repository: %q, tag: %q}
command: [sh, -c, %q]
noonctl: {image: {tag: kube-test}}
redis: {existingSecret: redis}
%s`, busyboxImage[:colon], busyboxImage[colon+1:], script, values), 0o600); err != nil {
		c.Fatal(err)
	}
	c.Log(c.helm("install", release, noonctlChart, "--values", file, "--wait", "--timeout", patience.String()))
	return "app.kubernetes.io/instance=" + release + ",app.kubernetes.io/component=replica"
}

// TestNoonctl runs a command on the leader with charts/noonctl. An upgrade to a wrong password fails and leaves a leader.
// TestTakeover kills and deletes leaders of noonctl.
func TestNoonctl(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "noonlock-noonctl", restricted)
	c.redis("redis", "--requirepass", "right")
	const token = "0123456789abcdef0123456789abcdef"
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=url=redis://:right@redis:6379/0")
	c.kubectl("create", "secret", "generic", "page", "--from-literal=token="+token)
	c.kubectl("create", "secret", "generic", "wrong", "--from-literal=password=wrong")
	c.noonctl("work", `trap 'exit 0' TERM; while true; do echo "work $NOONLOCK_TOKEN"; sleep 0.1 & wait $!; done`,
		"elect: {enabled: true, lease: 5s}\nserve: {enabled: true, existingSecret: page}\n")

	inPod := func(args ...string) (string, error) {
		return c.try("", "kubectl", append([]string{"-n", c.namespace, "exec", "deploy/work-noonctl", "--"}, args...)...)
	}
	const page = "http://work-noonctl-page/"
	if out, err := inPod("wget", "-q", "-O", "-", "--header", "Authorization: Bearer "+token, page); err != nil || !strings.Contains(out, "noonlock") {
		t.Errorf("the page with its token: %v\n%s", err, out)
	}
	if out, err := inPod("wget", "-q", "-O", "-", page); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the page without its token: %v\n%s", err, out)
	}

	described := regexp.MustCompile(`(?m)^Leader: +(\S+)\n(?:.*\n)*?Token: +(\d+)$`)
	leads := func() {
		c.await("the work of a leader", func() bool {
			out, _ := inPod("/noonlock/noonctl", "describe", "election", "work-noonctl") // the pod may be restarting
			found := described.FindStringSubmatch(out)
			if found == nil {
				return false
			}
			log, _ := c.try("", "kubectl", "-n", c.namespace, "logs", found[1], "-c", "command", "--tail=20")
			return strings.Contains(log, "work "+found[2]+"\n")
		})
	}
	leads()
	if out, err := c.try("", c.helmPath, "-n", c.namespace, "upgrade", "work", noonctlChart, "--reset-then-reuse-values", "--wait", "--atomic", "--timeout", "30s",
		"--set", "redis.existingSecret=,redis.url=redis://redis:6379/0,redis.auth.existingSecret=wrong"); err == nil {
		t.Errorf("the upgrade to a wrong password succeeds:\n%s", out)
	}
	leads()
}

// TestNoonctlCron runs a command every two seconds. The noonctl of a pod is killed, and the other pod is
// deleted. No tick is missing, and none succeeds twice.
func TestNoonctlCron(t *testing.T) {
	t.Parallel()
	newCluster(t, "noonlock-cron-hand")
	c := newCluster(t, "noonlock-cron", restricted)
	c.redis("redis")
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=url=redis://redis:6379/0")
	selector := c.noonctl("tick", `sleep 0.5; echo "$NOONLOCK_TICK"`, `name: ticks
cron: {schedule: "@every 2s", catchUp: all, ttl: 2s, drainSeconds: 5, killAfterSeconds: 5}
terminationGracePeriodSeconds: 20
`)
	type run struct {
		Tick    time.Time
		Outcome string
	}
	history := func(limit string) []run {
		c.Helper()
		var all struct{ Runs []run }
		out := c.kubectl("exec", "deploy/tick-noonctl", "--", "/noonlock/noonctl", "history", "ticks", "--limit", limit, "-o", "json")
		check(c, json.Unmarshal([]byte(out), &all))
		return all.Runs
	}
	ended := func() {
		c.Helper()
		before := time.Now()
		c.await("a later run", func() bool {
			runs := history("1")
			return len(runs) > 0 && runs[0].Tick.After(before.Add(5*time.Second))
		})
	}
	ended()
	pods := c.ready(selector, 2)
	c.kill(pods[0].Metadata.Name, "/noonlock/noonctl")
	ended()
	c.kubectl("delete", "pod", pods[1].Metadata.Name, "--wait=false")
	ended()
	c.ready(selector, 2)
	runs := history("100")
	for i, run := range runs {
		if run.Outcome != "succeeded" || i > 0 && runs[i-1].Tick.Sub(run.Tick) != 2*time.Second {
			t.Errorf("entry %d: %+v", i, runs)
		}
	}
}
