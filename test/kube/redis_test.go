//go:build kube

package kube

import (
	"cmp"
	"os"
	"strings"
)

// redisImage is the image of Redis for this test and for the chart.
var redisImage = cmp.Or(os.Getenv("KUBE_REDIS_IMAGE"), "docker.io/library/redis:7.0")

// redis runs a Redis server in a pod and a Service of this name. It keeps nothing on disk. args are
// additional arguments of redis-server.
func (c *cluster) redis(name string, args ...string) {
	c.Helper()
	c.apply(strings.NewReplacer("@NAME@", name, "@IMAGE@", redisImage, "@ARGS@", quoted(args)).Replace(`
apiVersion: v1
kind: Service
metadata: {name: "@NAME@"}
spec: {selector: {redis: "@NAME@"}, ports: [{port: 6379}]}
---
apiVersion: v1
kind: Pod
metadata: {name: "@NAME@", labels: {redis: "@NAME@"}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: redis
      image: "@IMAGE@"
      imagePullPolicy: IfNotPresent
      command: [redis-server, --save, "", --dir, /data, --protected-mode, "no" @ARGS@]
      readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`))
	c.ready("redis="+name, 1)
}

// quoted returns the arguments as the continuation of a list in YAML.
func quoted(args []string) string {
	var list strings.Builder
	for _, arg := range args {
		list.WriteString(", '" + strings.ReplaceAll(arg, "'", "''") + "'")
	}
	return list.String()
}
