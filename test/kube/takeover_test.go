//go:build kube

package kube

import (
	"net/http"
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

			// next waits for the answer of another leader than the last one. gap is how long no leader answered.
			next := func(last string) (leader string, gap time.Duration) {
				var since time.Time
				c.poll("a leader after "+last, 20*time.Millisecond, func() bool {
					code, body := c.get("services/" + app + ":80/proxy/" + x.path)
					found := x.answer.FindStringSubmatch(body)
					switch {
					case code != http.StatusOK || found == nil:
						if since.IsZero() {
							since = time.Now()
						}
						return false
					case found[1] == last: // single requests may fail before the hand-over
						since = time.Time{}
						return false
					case !since.IsZero():
						gap = time.Since(since)
					}
					leader = found[1]
					return true
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
			// Without a hand-over, each gap would be at least the lease. Half of the gaps are shorter however busy the machine is.
			slices.Sort(gaps)
			if gaps[tries/2] > lease/3 || gaps[tries-1] >= lease {
				t.Errorf("the gaps are %s; want a median of at most %s, and each shorter than the lease, %s", gaps, lease/3, lease)
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
