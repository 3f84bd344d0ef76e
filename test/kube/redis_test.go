//go:build kube

package kube

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// redisImage is the image of Redis for this test and for the chart.
var redisImage = cmp.Or(os.Getenv("KUBE_REDIS_IMAGE"), "docker.io/valkey/valkey:8.0")

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
	c.apply(strings.NewReplacer("@NAME@", name, "@IMAGE@", redisImage, "@ARGS@", list(args), "@CONFIG@", list([]string{config}), "@PORT@", strconv.Itoa(port)).Replace(`
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
      image: noonlock.local/hand:kube-test
      imagePullPolicy: IfNotPresent
      args: [write, /data/redis.conf, @CONFIG@]
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
