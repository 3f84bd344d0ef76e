//go:build kube

package kube

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/servers"
)

var (
	// redisImage is the image of Redis for this test and for the chart.
	redisImage = cmp.Or(os.Getenv("KUBE_REDIS_IMAGE"), "docker.io/valkey/valkey:8.0")

	busyboxImage = cmp.Or(os.Getenv("KUBE_BUSYBOX_IMAGE"), "docker.io/library/busybox:1.36")
)

// redis runs redis-server in a pod and a Service of this name, and returns the address of the pod.
// It keeps nothing on disk. args are additional arguments.
func (c *cluster) redis(name string, args ...string) (ip string) {
	c.Helper()
	return c.redisWith(name, "", 6379, append([]string{"--save", "", "--dir", "/data", "--protected-mode", "no"}, args...)...)
}

// sentinel runs a Sentinel in a pod and a Service of this name.
func (c *cluster) sentinel(name, primary, password string) {
	c.Helper()
	c.redisWith(name, fmt.Sprintf(`port 26379
dir /data
protected-mode no
sentinel monitor lottery %[1]s 6379 2
sentinel auth-pass lottery %[2]s
sentinel down-after-milliseconds lottery 3000
sentinel failover-timeout lottery 10000
`, primary, password), 26379, "/data/redis.conf", "--sentinel")
}

// redisWith runs redis-server. If there is a configuration, it is written to /data/redis.conf. A
// Secret certs with certificates may exist.
func (c *cluster) redisWith(name, config string, port int, args ...string) (ip string) {
	c.Helper()
	c.apply(strings.NewReplacer("@NAME@", name, "@IMAGE@", redisImage, "@BUSYBOX@", busyboxImage, "@ARGS@", list(args), "@CONFIG@", list([]string{config}), "@PORT@", strconv.Itoa(port)).Replace(`
apiVersion: v1
kind: Service
metadata: {name: "@NAME@"}
spec: {selector: {redis: "@NAME@"}, ports: [{port: @PORT@}]}
---
apiVersion: v1
kind: Pod
metadata: {name: "@NAME@", labels: {redis: "@NAME@"}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  initContainers:
    - name: config
      image: "@BUSYBOX@"
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'echo "$CONFIG" >/data/redis.conf']
      env: [{name: CONFIG, value: @CONFIG@}]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: data, mountPath: /data}]
  containers:
    - name: redis
      image: "@IMAGE@"
      imagePullPolicy: IfNotPresent
      command: [redis-server, @ARGS@]
      readinessProbe: {tcpSocket: {port: @PORT@}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: data, mountPath: /data}, {name: certs, mountPath: /certs}]
  volumes: [{name: data, emptyDir: {}}, {name: certs, secret: {secretName: certs, optional: true}}]
`))
	c.ready("redis="+name, 1)
	return c.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")
}

// list returns the elements of a list in YAML.
func list(elements []string) string {
	quoted := make([]string, len(elements))
	for i, element := range elements {
		quoted[i] = fmt.Sprintf("%q", element) // JSON's quotes are valid in YAML
	}
	return strings.Join(quoted, ", ")
}

const password = `a "b'%/@:` // by value it needs no quoting

// TestSentinel kills the pod of a primary that Sentinels watch, and counts the noons before, during and after the
// failover. A failover on a real cluster differs from that of test/chaos in the names and addresses of pods.
func TestSentinel(t *testing.T) {
	if os.Getenv("NOONLOCK_NIGHTLY") == "" {
		t.Skip("make nightly runs it")
	}
	t.Parallel()
	c := newCluster(t, "noonlock-sentinel", restricted)
	auth := []string{"--requirepass", "secret", "--masterauth", "secret"}
	primary := c.redis("redis-0", auth...)
	for _, name := range []string{"redis-1", "redis-2"} {
		c.redis(name, append(auth, "--replicaof", primary, "6379")...)
	}
	names := []string{"sentinel-0", "sentinel-1", "sentinel-2"}
	for _, name := range names {
		c.sentinel(name, primary, "secret")
	}
	for _, name := range names {
		c.await(name+" to know all", func() bool {
			out := c.kubectl("exec", name, "-c", "redis", "--", "redis-cli", "-p", "26379", "info", "sentinel")
			return strings.Contains(out, "status=ok,address="+primary+":6379,slaves=2,sentinels=3")
		})
	}
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=password=secret")
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), bundled(), []string{
		"--set", `redis.url=redis+sentinel://sentinel-0:26379\,sentinel-1:26379\,sentinel-2:26379/0?master=lottery,redis.auth.existingSecret=redis`,
		"--set", "database.sqlite.enabled=true",
		"--set-file", "entrants.inline=../../examples/lottery/entrants.csv",
	})...)
	l.counts()
	l.drawn(10)
	c.kubectl("delete", "pod", "redis-0", "--grace-period=0", "--force")
	l.again()
	l.check(l.count(), time.Time{})
}

// TestCertificates uses a Redis that requires a password, and TLS with a client certificate of its own authority.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "noonlock-certs", restricted)
	ours := servers.SelfSigned(t)
	own, client := ours.Sign(t), ours.Sign(t)
	c.kubectl("create", "configmap", "roots", "--from-file=ca.crt="+ours.Cert)
	c.kubectl("create", "secret", "tls", "client", "--cert="+client.Cert, "--key="+client.Key)
	c.kubectl("create", "secret", "generic", "redis", "--from-literal=password="+password)
	c.kubectl("create", "secret", "generic", "certs", "--from-file=ca.crt="+ours.Cert, "--from-file=server.crt="+own.Cert, "--from-file=server.key="+own.Key)
	c.redis("redis", "--requirepass", password, "--port", "0", "--tls-port", "6379", "--tls-ca-cert-file", "/certs/ca.crt",
		"--tls-cert-file", "/certs/server.crt", "--tls-key-file", "/certs/server.key")
	l := c.install("demo", "demo-lottery", chart, slices.Concat(each1s(), bundled(), []string{
		"--set", "redis.url=rediss://redis:6379,redis.auth.existingSecret=redis,redis.tls.ca.configMap=roots,redis.tls.client.existingSecret=client",
		"--set", "database.sqlite.enabled=true",
		"--set-file", "entrants.inline=../../examples/lottery/entrants.csv",
	})...)
	l.counts()
	l.drawn(5)
	l.check(4, time.Time{})
}
