//go:build kube

package kube

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// TestNoonctl runs a command on the leader with charts/noonctl. The noonctl of the leader is killed, and
// the next leader is deleted. An upgrade to a Redis that does not exist, or to a wrong password, fails and
// leaves a leader.
func TestNoonctl(t *testing.T) {
	t.Parallel()
	newCluster(t, "noonlock-noonctl-hand")
	c := newCluster(t, "noonlock-noonctl", restricted)
	c.redis("redis", "--requirepass", "right")
	const token = "0123456789abcdef0123456789abcdef"
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=url=redis://:right@redis:6379/0")
	c.kubectl("create", "secret", "generic", "page", "--from-literal=token="+token)
	for _, password := range []string{"right", "wrong"} {
		c.kubectl("create", "secret", "generic", password, "--from-literal=password="+password)
	}
	selector := c.noonctl("work", `trap 'exit 0' TERM; while true; do echo "work $NOONLOCK_TOKEN"; sleep 0.1 & wait $!; done`,
		"elect: {enabled: true, lease: 5s}\nserve: {enabled: true, existingSecret: page}\n")

	page := func(args ...string) (string, error) {
		return c.try("", "kubectl", append(append([]string{"-n", c.namespace, "exec", "deploy/work-noonctl", "--", "wget", "-q", "-O", "-"}, args...), "http://work-noonctl-page/")...)
	}
	if out, err := page("--header", "Authorization: Bearer "+token); err != nil || !strings.Contains(out, "noonlock") {
		t.Errorf("the page with its token: %v\n%s", err, out)
	}
	if out, err := page(); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the page without its token: %v\n%s", err, out)
	}

	w := &working{cluster: c, spans: map[uint64]span{}, followed: map[string]bool{}}
	w.follow(selector)
	last := w.next(span{})
	c.hand("kill", last.pod, "/noonlock/noonctl")
	next := w.next(last)
	t.Logf("%s was killed; %s worked %s later", last.pod, next.pod, next.first.Sub(w.span(last.token).last))
	if next.pod == last.pod {
		t.Errorf("%s was killed, and leads again", last.pod)
	}
	w.follow(selector) // the new container, too
	last = next
	c.kubectl("delete", "pod", last.pod, "--wait=false")
	next = w.next(last)
	t.Logf("%s was deleted; %s worked %s later", last.pod, next.pod, next.first.Sub(w.span(last.token).last))
	for name, value := range map[string]string{"host": "redis.url=redis://nowhere:6379/0,redis.auth.existingSecret=right", "password": "redis.url=redis://redis:6379/0,redis.auth.existingSecret=wrong"} {
		if out, err := c.try("", c.helmPath, "-n", c.namespace, "upgrade", "work", noonctlChart, "--reset-then-reuse-values", "--wait", "--atomic", "--timeout", "30s",
			"--set", "redis.existingSecret="+","+value); err == nil {
			t.Errorf("the upgrade to a wrong %s succeeds:\n%s", name, out)
		}
		w.follow(selector)
		last := w.newest()
		w.await("work after the refused upgrade", func() bool { return w.newest().After(last) })
	}
	w.apart()
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
	noonctl := func(args ...string) string {
		c.Helper()
		return c.kubectl(append([]string{"exec", "deploy/tick-noonctl", "--", "/noonlock/noonctl"}, args...)...)
	}
	newest := func() (tick time.Time) {
		c.Helper()
		var history struct{ Runs []struct{ Tick time.Time } }
		check(c, json.Unmarshal([]byte(noonctl("history", "ticks", "--limit", "1", "-o", "json")), &history))
		for _, run := range history.Runs {
			tick = run.Tick
		}
		return tick
	}
	ended := func() {
		c.Helper()
		before := time.Now()
		c.await("a later run", func() bool { return newest().After(before.Add(5 * time.Second)) })
	}
	ended()
	pods := c.ready(selector, 2)
	c.hand("kill", pods[0].Metadata.Name, "/noonlock/noonctl")
	ended()
	c.kubectl("delete", "pod", pods[1].Metadata.Name, "--wait=false")
	ended()
	c.ready(selector, 2)
	var history struct {
		Runs []struct {
			Tick    time.Time
			Outcome string
		}
	}
	check(t, json.Unmarshal([]byte(noonctl("history", "ticks", "--limit", "100", "-o", "json")), &history))
	for i, run := range history.Runs {
		if run.Outcome != "succeeded" || i > 0 && history.Runs[i-1].Tick.Sub(run.Tick) != 2*time.Second {
			t.Errorf("entry %d: %+v", i, history.Runs)
		}
	}
}

// A span is the work of one leadership, by the lines that its command has written.
type span struct {
	pod         string
	token       uint64
	first, last time.Time
}

// working follows the output of the commands.
type working struct {
	*cluster
	followed map[string]bool // containers, by pod and number of restarts

	mu    sync.Mutex
	spans map[uint64]span // by token
}

// follow reads the output of all containers that are not followed yet, until they end.
func (w *working) follow(selector string) {
	w.Helper()
	for _, p := range w.ready(selector, 2) {
		container := fmt.Sprint(p.Metadata.Name, p.restarts())
		if w.followed[container] {
			continue
		}
		w.followed[container] = true
		w.stream(func(out io.Reader) {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				w.read(p.Metadata.Name, lines.Text())
			}
		}, "logs", "--follow", "--timestamps", p.Metadata.Name, "-c", "command")
	}
}

func (w *working) read(pod, line string) {
	stamp, text, _ := strings.Cut(line, " ")
	number, ok := strings.CutPrefix(text, "work ")
	if !ok {
		return // of noonctl
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	token, err2 := strconv.ParseUint(number, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	s, known := w.spans[token]
	if err != nil || err2 != nil || known && s.pod != pod {
		w.Errorf("%s wrote %q; the token is that of %q", pod, line, s.pod)
		return
	}
	if !known {
		s = span{pod: pod, token: token, first: at}
	}
	s.last = at
	w.spans[token] = s
}

func (w *working) span(token uint64) span {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spans[token]
}

// newest is when a command has last written a line.
func (w *working) newest() (last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.spans {
		if s.last.After(last) {
			last = s.last
		}
	}
	return last
}

// next waits for the work of a newer leadership.
func (w *working) next(last span) (next span) {
	w.Helper()
	w.await("the work of a leader after "+last.pod, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for token, s := range w.spans {
			if token > last.token {
				next = s
			}
		}
		return next.token > 0
	})
	return next
}

// apart fails the test if the work of two leaderships overlaps.
func (w *working) apart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.spans {
		for _, b := range w.spans {
			if a.token < b.token && !a.last.Before(b.first) {
				w.Errorf("%s worked until %s, and %s since %s", a.pod, a.last, b.pod, b.first)
			}
		}
	}
}
