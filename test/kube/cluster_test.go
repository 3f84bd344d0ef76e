//go:build kube

package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
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

// proxy is the address at which "kubectl proxy" passes requests on to the API server. A process of kubectl for each
// request of a test that waits would take most of the time of the processors.
var proxy string

func TestMain(m *testing.M) {
	cmd := exec.Command("kubectl", "proxy", "--port=0")
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		panic(err)
	}
	if _, err := fmt.Fscanf(out, "Starting to serve on %s\n", &proxy); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
	os.Exit(code)
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
		c.must("", "kubectl", "delete", "namespace", namespace, "--wait=false")
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
		Name              string  `json:"name"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type, Status string
		} `json:"conditions"`
		ContainerStatuses []struct {
			RestartCount int `json:"restartCount"`
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

// pods returns the pods of a selector that are not terminating.
func (c *cluster) pods(selector string) []pod {
	c.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	_, body := c.get("pods?labelSelector=" + url.QueryEscape(selector))
	check(c, json.Unmarshal([]byte(body), &list))
	var there []pod
	for _, p := range list.Items {
		if p.Metadata.DeletionTimestamp == nil {
			there = append(there, p)
		}
	}
	return there
}

// get returns the answer of the API server to a path in the namespace, with code 0 if there is none.
func (c *cluster) get(path string) (code int, body string) {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + proxy + "/api/v1/namespaces/" + c.namespace + "/" + path) //nolint:noctx // it ends soon
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
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

// kill sends SIGKILL to the process of a pod that runs a program. Kubernetes has no command for this. The namespace
// NAME-hand allows the privileged pod that does it.
func (c *cluster) kill(pod, program string) {
	c.Helper()
	h := &cluster{T: c.T, namespace: c.namespace + "-hand"}
	node := c.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	h.apply(strings.NewReplacer("@NODE@", node, "@POD@", pod, "@PROGRAM@", program, "@IMAGE@", busyboxImage).Replace(`
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
      image: "@IMAGE@"
      imagePullPolicy: IfNotPresent
      securityContext: {privileged: true, runAsUser: 0}
      command: [sh, -c]
      args:
        - |
          for process in /proc/[0-9]*; do
            tr '\0' '\n' <$process/environ | grep -qx HOSTNAME=@POD@ || continue
            tr '\0' '\n' <$process/cmdline | { read -r program; [ "$program" = @PROGRAM@ ]; } || continue
            kill -KILL ${process#/proc/} && exit
          done
          exit 1
`))
	h.await("the end of "+program, func() bool {
		phase := h.kubectl("get", "pod", "hand", "-o", "jsonpath={.status.phase}")
		if phase == "Failed" {
			h.Fatalf("the pod %s has no process %s:\n%s", pod, program, h.kubectl("logs", "hand"))
		}
		return phase == "Succeeded"
	})
	h.kubectl("delete", "pod", "hand", "--wait")
	c.Logf("%s of %s was killed", program, pod)
}
