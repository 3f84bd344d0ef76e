//go:build kube

package kube

import (
	"strings"
	"time"
)

const (
	candidates = "app=leader"
	lease      = 15 * time.Second
)

// elected runs three replicas of examples/leader on the Redis of the release. The
// leader's pod is deleted, and the next one leads at once; the next leader's process
// is killed, and another leads within the lease.
func elected(c *cluster) {
	c.Helper()
	c.apply(strings.ReplaceAll(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: leader}
spec:
  replicas: 3
  selector: {matchLabels: {app: leader}}
  template:
    metadata: {labels: {app: leader}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: leader
          image: noonlock.local/leader:kube-test
          imagePullPolicy: IfNotPresent
          env:
            - {name: REDIS_URL, valueFrom: {secretKeyRef: {name: demo-lottery-redis, key: url}}}
            - {name: LEADER_LEASE, value: "@LEASE@"}
            - {name: LEADER_LOG_FORMAT, value: json}
            - {name: LEADER_IDENTITY, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
          livenessProbe: {httpGet: {path: /livez, port: http}}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          resources: {requests: {cpu: 20m, memory: 32Mi}, limits: {memory: 96Mi}}
`, "@LEASE@", lease.String()))
	c.ready(candidates, 3)

	for _, how := range []string{"deleted", "killed"} {
		pods := c.ready(candidates, 3)
		leader := c.leader(pods)
		logs := map[string]*follower{}
		for _, p := range pods {
			logs[p.Metadata.Name] = c.follow(p.Metadata.Name)
		}
		c.hear(logs[leader], "working") // the log is being read
		var from time.Time
		if how == "deleted" {
			c.kubectl("delete", "pod", leader, "--wait=false")
			from = c.hear(logs[leader], "lead given up")
		} else {
			said := c.hand("kill", leader, "/leader")
			at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(said[strings.LastIndex(said, " ")+1:]))
			if err != nil {
				c.Fatal(err)
			}
			from = at
		}
		type success struct {
			name string
			at   time.Time
		}
		next := make(chan success, len(pods))
		for name, log := range logs {
			if name != leader {
				go func() {
					for line := range log.lines {
						if line["msg"] == "leading" {
							at, _ := time.Parse(time.RFC3339Nano, line["time"].(string)) // checked below
							next <- success{name, at}
							return
						}
					}
				}()
			}
		}
		timer := time.NewTimer(patience)
		select {
		case s := <-next:
			timer.Stop()
			took := s.at.Sub(from)
			c.Logf("the leader %s was %s; %s leads after %s (lease %s)", leader, how, s.name, took, lease)
			// A lead that was given up is handed over; nobody waits for a lease.
			if s.at.IsZero() || how == "deleted" && took > lease/2 {
				c.Errorf("the hand-over took %s", took)
			}
			// A dead leader's lease ends at most one lease after its last renewal,
			// which was before its death. The rest is for a slow machine.
			if took > lease+patience/10 {
				c.Errorf("the succession took %s, with a lease of %s", took, lease)
			}
		case <-timer.C:
			c.Fatalf("nobody leads %s after the leader was %s", patience, how)
		}
	}
}

// leader returns the pod that says that it leads, which only one may.
func (c *cluster) leader(pods []pod) (name string) {
	c.Helper()
	c.await("one leader", func() bool {
		name = ""
		for _, p := range pods {
			page, err := c.get(p.Metadata.Name, "/metrics")
			if err != nil {
				return false
			}
			if strings.Contains(page, "\nleader_election_master_status{name=\"demo\"} 1\n") {
				if name != "" {
					c.Errorf("%s and %s say that they lead", name, p.Metadata.Name)
				}
				name = p.Metadata.Name
			}
		}
		return name != ""
	})
	return name
}
