//go:build kube

package kube

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

const (
	candidates = "app=leader"
	lease      = 15 * time.Second

	// retryPeriod is the retry period of a client-go candidate with this lease.
	retryPeriod = lease * 2 / 15

	// lateness is the delay that a busy machine may add.
	lateness = 2 * time.Second
)

// record is the leader record from Redis, with times of the server's clock: see examples/leader.
type record struct {
	Holder            string
	Token             uint64
	Acquired, Renewed time.Time
}

// record requests the record from a pod.
func (c *cluster) record(pod string) (r record, err error) {
	page, err := c.get(pod, "/record")
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(page), &r)
}

// A succession is the last record of one leader, and the first record of the next.
type succession struct{ last, first record }

// awaitSuccession requests the record from the pods until another replica leads.
func (c *cluster) awaitSuccession(ctx context.Context, pods []string) <-chan succession {
	found := make(chan succession, 1)
	go func() {
		defer close(found)
		again := time.NewTicker(200 * time.Millisecond)
		defer again.Stop()
		for last := (record{}); ; {
			for _, pod := range pods {
				r, err := c.record(pod)
				switch {
				case err != nil || r.Holder == "": // retried below
				case last.Token != 0 && r.Token > last.Token:
					found <- succession{last, r}
					return
				default:
					last = r
				}
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return found
}

// elected runs three replicas of examples/leader with the Redis of the release. The leader's pod is
// deleted, and the next replica leads immediately. Then the process of that leader is killed, and
// another replica leads after the lease has expired, not earlier.
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
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var others []string
		for name := range logs {
			if name != leader {
				others = append(others, name)
			}
		}
		var records <-chan succession
		var from time.Time
		if how == "deleted" {
			c.kubectl("delete", "pod", leader, "--wait=false")
			from = c.hear(logs[leader], "leadership released")
		} else {
			if r, err := c.record(others[0]); err != nil || r.Holder != leader {
				c.Fatalf("the record is %+v, %v; want that of %s", r, err, leader)
			}
			records = c.awaitSuccession(ctx, others)
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
						if line["msg"] == "leadership acquired" {
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
			// A released leadership is handed over by a message: no candidate waits for the lease or polls.
			if s.at.IsZero() || how == "deleted" && took >= retryPeriod {
				c.Errorf("the hand-over took %s; want less than %s", took, retryPeriod)
			}
			if how == "killed" {
				c.succeeded(<-records)
			}
		case <-timer.C:
			c.Fatalf("there is no leader %s after the leader was %s", patience, how)
		}
	}
}

// succeeded checks a succession after a kill: the lease expires one lease after the last renewal,
// and then the next replica leads.
func (c *cluster) succeeded(s succession) {
	c.Helper()
	if s.first.Token == 0 {
		c.Fatal("no pod returns the record of the next leader")
	}
	took := s.first.Acquired.Sub(s.last.Renewed)
	c.Logf("by the server's clock %s led %s after the last renewal of %s (lease %s)", s.first.Holder, took, s.last.Holder, lease)
	if took < lease || took > lease+lateness {
		c.Errorf("%s led %s after the last renewal of %s; want from %s to %s", s.first.Holder, took, s.last.Holder, lease, lease+lateness)
	}
}

// leader returns the pod that reports to be the leader. There must be only one.
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
