//go:build kube

package kube

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTakeover runs the manifests of examples/leader and examples/sidecar. The leader's pod is deleted several times:
// the next replica leads immediately, and the Service sends traffic to it. Then the leader's process is killed.
func TestTakeover(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second // of both manifests
	tries := 3
	if os.Getenv("NOONLOCK_NIGHTLY") != "" {
		tries = 50
	}
	images := strings.NewReplacer(":dev", ":kube-test", "docker.io/library/busybox:1.36", busyboxImage)
	for app, x := range map[string]struct {
		folder, path, program string
		answer, work          *regexp.Regexp // of the leader: its answer has the name of its pod
	}{
		"leader": {"leader", "leader", "/leader", regexp.MustCompile(`"leader":"([^"]+)","leading":true`), regexp.MustCompile(`"msg":"working","token":`)},
		"site":   {"sidecar", "", "/noonctl", regexp.MustCompile(`^(site-\S+)\n`), regexp.MustCompile(`working: .*"leading":true,"token":`)},
	} {
		t.Run(app, func(t *testing.T) {
			t.Parallel()
			newCluster(t, "noonlock-"+app+"-hand")
			c := newCluster(t, "noonlock-"+app, restricted)
			c.redis("redis")
			c.kubectl("create", "secret", "generic", app+"-redis", "--from-literal=url=redis://redis:6379/0")
			manifest, err := os.ReadFile("../../examples/" + x.folder + "/kubernetes.yaml")
			check(t, err)
			c.apply(images.Replace(string(manifest)))

			// kube-proxy sends requests of pods to the leader until it ends. The proxy of the API server does not.
			c.apply(strings.NewReplacer("@IMAGE@", busyboxImage, "@URL@", "http://"+app+"/"+x.path).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: ask}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: ask
      image: "@IMAGE@"
      imagePullPolicy: IfNotPresent
      command: [sh, -c, "while true; do timeout 1 wget -q -O - @URL@; sleep 0.05; done"]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`))
			// next waits for the answer of another leader than the last one. gap is how long no leader answered.
			next := func(last string) (leader string, gap time.Duration) {
				c.await("the answer of a leader after "+last, func() bool {
					var end time.Time // of the answers of the last leader
					_, log := c.get("pods/ask/log?timestamps=true&tailLines=5000")
					for line := range strings.Lines(log) {
						stamp, answer, _ := strings.Cut(line, " ")
						found := x.answer.FindStringSubmatch(answer)
						if found == nil || found[1] != last && last != "" && end.IsZero() { // an error, or of an earlier leader
							continue
						}
						at, err := time.Parse(time.RFC3339Nano, stamp)
						check(c, err)
						if found[1] != last {
							leader, gap = found[1], at.Sub(end)
							return true
						}
						end = at
					}
					return false
				})
				c.await("the work of "+leader, func() bool {
					return x.work.MatchString(c.kubectl("logs", leader, "--all-containers"))
				})
				c.await("one pod that is ready, and all in the queue", func() bool {
					all := c.pods("app=" + app)
					ready := slices.DeleteFunc(slices.Clone(all), func(p pod) bool { return !p.ready() })
					return len(all) == 3 && len(ready) == 1 && ready[0].Metadata.Name == leader
				})
				c.Logf("%s leads after %s without a leader", leader, gap)
				return leader, gap
			}
			leader, _ := next("")
			var gaps []time.Duration
			for range tries {
				var gap time.Duration
				c.kubectl("delete", "pod", leader, "--wait=false")
				leader, gap = next(leader)
				gaps = append(gaps, gap)
			}
			// Without a hand-over, each gap would be at least the lease. On a busy machine, some take long.
			if slices.Min(gaps) > lease/3 || slices.Max(gaps) >= lease {
				t.Errorf("the gaps are %s; want one of at most %s, and each shorter than the lease, %s", gaps, lease/3, lease)
			}
			c.kill(leader, x.program)
			killed := leader
			leader, _ = next(killed)
			if app == "site" { // the pod lives on, and its new noonctl removes the label that the killed one had set
				c.await("one pod with the label", func() bool {
					labeled := c.pods("app=site,leader=yes")
					return len(labeled) == 1 && labeled[0].Metadata.Name == leader
				})
				if i := slices.IndexFunc(c.pods("app=site"), func(p pod) bool { return p.Metadata.Name == killed && p.restarts() == 0 }); i < 0 {
					t.Errorf("the pod %s of the killed noonctl has not lived on", killed)
				}
			}
		})
	}
}
