//go:build kube

package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience limits every wait for an event. Nothing is measured against it.
const patience = 3 * time.Minute

// cluster is a namespace of a real cluster, used through kubectl and helm.
type cluster struct {
	*testing.T
	helmPath  string
	namespace string
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// restricted is the label of a namespace that allows only pods of the restricted Pod Security
// Standard.
const restricted = "pod-security.kubernetes.io/enforce=restricted"

// newCluster creates the namespace and removes it at the end.
func newCluster(t *testing.T, namespace string, labels ...string) *cluster {
	t.Helper()
	c := &cluster{T: t, helmPath: cmp.Or(os.Getenv("KUBE_HELM"), "helm"), namespace: namespace}
	c.must("", "kubectl", "delete", "namespace", namespace, "--ignore-not-found", "--wait")
	c.must("", "kubectl", "create", "namespace", namespace)
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
		}
		c.must("", "kubectl", "delete", "namespace", namespace, "--wait")
	})
	if len(labels) > 0 {
		c.must("", "kubectl", append([]string{"label", "namespace", namespace}, labels...)...)
	}
	return c
}

// try runs a command with the input and returns its output.
func (c *cluster) try(input, name string, args ...string) (string, error) {
	// Not the test's context, which ends before the cleanup.
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New(said.String()))
	}
	return out.String(), nil
}

func (c *cluster) must(input, name string, args ...string) string {
	c.Helper()
	out, err := c.try(input, name, args...)
	if err != nil {
		c.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	return c.must("", "kubectl", append([]string{"-n", c.namespace}, args...)...)
}

// stream passes the output of kubectl to read, until the test ends.
func (c *cluster) stream(read func(out io.Reader), args ...string) {
	c.Helper()
	cmd := exec.Command("kubectl", append([]string{"-n", c.namespace}, args...)...)
	out, err := cmd.StdoutPipe()
	check(c, err)
	check(c, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		read(out)
	}()
	c.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		_ = cmd.Wait()
	})
}

func (c *cluster) apply(manifest string) {
	c.Helper()
	c.must(manifest, "kubectl", "-n", c.namespace, "apply", "-f", "-")
}

func (c *cluster) helm(args ...string) string {
	c.Helper()
	return c.must("", c.helmPath, append([]string{"-n", c.namespace}, args...)...)
}

// pod has the fields of a pod that this test uses.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Labels            map[string]string `json:"labels"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type, Status string
		} `json:"conditions"`
		ContainerStatuses []struct {
			RestartCount int `json:"restartCount"`
			LastState    struct {
				Terminated *struct {
					Reason   string `json:"reason"`
					ExitCode int    `json:"exitCode"`
				} `json:"terminated"`
			} `json:"lastState"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

func (p pod) ready() bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

func (p pod) restarts() (n int) {
	for _, container := range p.Status.ContainerStatuses {
		n += container.RestartCount
	}
	return n
}

// died returns the reason and the exit code of the container's last termination.
func (p pod) died() (string, int) {
	for _, container := range p.Status.ContainerStatuses {
		if t := container.LastState.Terminated; t != nil {
			return t.Reason, t.ExitCode
		}
	}
	return "", 0
}

// pods returns the pods of a selector that are not terminating.
func (c *cluster) pods(selector string) []pod {
	c.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	check(c, json.Unmarshal([]byte(c.kubectl("get", "pods", "-l", selector, "-o", "json")), &list))
	var there []pod
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp == nil {
			there = append(there, p)
		}
	}
	return there
}

// get sends an HTTP request to a pod through the API server.
func (c *cluster) get(pod, path string) (string, error) {
	return c.try("", "kubectl", "get", "--raw", "/api/v1/namespaces/"+c.namespace+"/pods/"+pod+":8080/proxy"+path)
}

// await waits for the condition.
func (c *cluster) await(what string, holds func() bool) {
	c.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-deadline.C:
			c.Fatalf("waited for %s for %s", what, patience)
		}
	}
}

// ready waits until the selector matches this number of pods, all of them ready.
func (c *cluster) ready(selector string, n int) []pod {
	c.Helper()
	var pods []pod
	c.await("pods "+selector+" to be ready", func() bool {
		pods = c.pods(selector)
		for _, p := range pods {
			if !p.ready() {
				return false
			}
		}
		return len(pods) == n
	})
	return pods
}

// dump prints the state of the cluster after a failure.
func (c *cluster) dump() {
	for _, args := range [][]string{
		{"get", "pods,pvc,events", "-o", "wide"},
		{"logs", "-l", "noonlock!=none", "--prefix", "--tail=60", "--all-containers"},
		{"logs", "-l", "noonlock!=none", "--prefix", "--tail=60", "--all-containers", "--previous"},
	} {
		out, err := c.try("", "kubectl", append([]string{"-n", c.namespace}, args...)...)
		c.Logf("%v %v\n%s", args, err, out)
	}
}

// running waits until the selector matches this number of pods, all of them running.
func (c *cluster) running(selector string, n int) []pod {
	c.Helper()
	var pods []pod
	c.await("pods "+selector+" to run", func() bool {
		pods = c.pods(selector)
		return len(pods) == n && !slices.ContainsFunc(pods, func(p pod) bool { return p.Status.Phase != "Running" })
	})
	return pods
}

// hand affects a process of a pod; see the program hand. The namespace NAME-hand must exist.
func (c *cluster) hand(verb, pod, program string) string {
	c.Helper()
	h := &cluster{T: c.T, namespace: c.namespace + "-hand"}
	node := c.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	h.kubectl("delete", "pod", "hand", "--ignore-not-found", "--wait")
	h.apply(strings.NewReplacer("@NODE@", node, "@VERB@", verb, "@POD@", pod, "@PROGRAM@", program).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: hand}
spec:
  nodeName: "@NODE@"
  hostPID: true
  restartPolicy: Never
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers:
    - name: hand
      image: noonlock.local/hand:kube-test
      imagePullPolicy: IfNotPresent
      args: ["@VERB@", "@POD@", "@PROGRAM@"]
      securityContext: {privileged: true, runAsUser: 0}
      volumeMounts: [{name: cgroup, mountPath: /sys/fs/cgroup}, {name: fill, mountPath: /fill}]
  volumes:
    - name: fill
      emptyDir: {medium: Memory}
    - name: cgroup
      hostPath: {path: /sys/fs/cgroup}
`))
	h.await("the hand to "+verb, func() bool {
		phase := h.kubectl("get", "pod", "hand", "-o", "jsonpath={.status.phase}")
		if phase == "Failed" {
			h.Fatalf("the hand has failed to %s:\n%s", verb, h.kubectl("logs", "hand"))
		}
		return phase == "Succeeded"
	})
	out := h.kubectl("logs", "hand")
	h.kubectl("delete", "pod", "hand", "--wait")
	return out
}
