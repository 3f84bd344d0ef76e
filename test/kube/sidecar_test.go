//go:build kube

package kube

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	sites = "app=site"

	// unanswered is how long noonctl waits for the API of Kubernetes before it resigns without it. In a
	// hand-over that takes longer, two pods may have the label for a while.
	unanswered = 2 * time.Second
)

// busyboxImage is the image of busybox for this test.
var busyboxImage = cmp.Or(os.Getenv("KUBE_BUSYBOX_IMAGE"), "docker.io/library/busybox:1.36")

// TestSidecar runs the manifest of examples/sidecar. The leader's pod is deleted, and the label, the
// readiness and the Service move to another pod within a second. Then noonctl is killed in the
// leader's pod, and they move within the lease and two seconds. That pod lives on, and its new noonctl
// removes the label before another pod has it.
func TestSidecar(t *testing.T) {
	t.Parallel()
	newCluster(t, "noonlock-sidecar-hand")
	c := newCluster(t, "noonlock-sidecar", restricted)
	c.redis("redis")
	c.kubectl("create", "secret", "generic", "site-redis", "--from-literal=url=redis://redis:6379/0")
	manifest, err := os.ReadFile("../../examples/sidecar/kubernetes.yaml")
	check(t, err)
	c.apply(strings.NewReplacer("noonlock.local/noonctl:dev", "noonlock.local/noonctl:kube-test", "docker.io/library/busybox:1.36", busyboxImage).Replace(string(manifest)))
	w := c.watchSites()
	w.moves(5, time.Second, func(leader string) time.Time {
		c.kubectl("delete", "pod", leader, "--wait=false")
		return w.until("the deletion of "+leader, func(time.Time) bool { return w.pods[leader].Metadata.DeletionTimestamp != nil })
	})
	w.moves(2, lease+2*time.Second, func(leader string) time.Time {
		said := c.hand("kill", leader, "/noonctl")
		at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(said[strings.LastIndex(said, " ")+1:]))
		check(c, err)
		removed := w.until("the label to be removed from "+leader, func(time.Time) bool { return !w.labeled(leader) })
		c.Logf("noonctl of %s was killed; its next process removed the label after %s", leader, removed.Sub(at))
		if p := w.pods[leader]; p.Metadata.DeletionTimestamp != nil || p.Status.Phase != "Running" || p.restarts() != 0 {
			c.Errorf("the pod of the killed noonctl has not lived on: %+v", p)
		}
		return at
	})
}

// A siteWatch is what Kubernetes has reported about the pods and the Service of the manifest.
type siteWatch struct {
	*cluster
	events    chan siteEvent
	pods      map[string]pod
	endpoints map[string][]string // the ready pods of each EndpointSlice
	twice     bool                // two pods had the label at once
}

// A siteEvent is a pod or an EndpointSlice, and when it was reported.
type siteEvent struct {
	at      time.Time
	deleted bool
	pod     *pod
	slice   *endpointSlice
}

type endpointSlice struct {
	Metadata  struct{ Name string }
	Endpoints []struct {
		Conditions struct{ Ready bool }
		TargetRef  struct{ Name string }
	}
}

// watchSites reads the events until the test ends.
func (c *cluster) watchSites() *siteWatch {
	c.Helper()
	w := &siteWatch{cluster: c, events: make(chan siteEvent, 10_000), pods: map[string]pod{}, endpoints: map[string][]string{}}
	watch(w, func(p pod) siteEvent { return siteEvent{pod: &p} }, "pods", sites)
	watch(w, func(s endpointSlice) siteEvent { return siteEvent{slice: &s} }, "endpointslices", "kubernetes.io/service-name=site")
	return w
}

// watch reads the events of one kind of object.
func watch[T any](w *siteWatch, event func(T) siteEvent, kind, selector string) {
	w.Helper()
	w.stream(func(out io.Reader) {
		for decoder := json.NewDecoder(out); ; {
			var line struct {
				Type   string
				Object T
			}
			if decoder.Decode(&line) != nil {
				return
			}
			e := event(line.Object)
			e.at, e.deleted = time.Now(), line.Type == "DELETED"
			w.events <- e
		}
	}, "get", kind, "-l", selector, "--watch", "--output-watch-events", "-o", "json")
}

// until reads events until the condition holds, and returns the time of the last one.
func (w *siteWatch) until(what string, holds func(at time.Time) bool) (at time.Time) {
	w.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for at = time.Now(); !holds(at); {
		select {
		case e := <-w.events:
			w.read(e)
			at = e.at
		case <-timer.C:
			w.Fatalf("waited for %s for %s; the label is on %v, and the Service has %v", what, patience, w.leaders(), w.endpoints)
		}
	}
	return at
}

// settle reads events until there is none for a while. The kubelet may end a pod that it has just
// changed about two seconds late.
func (w *siteWatch) settle() {
	for {
		select {
		case e := <-w.events:
			w.read(e)
		case <-time.After(3 * time.Second):
			return
		}
	}
}

func (w *siteWatch) read(e siteEvent) {
	switch {
	case e.pod != nil && e.deleted:
		delete(w.pods, e.pod.Metadata.Name)
	case e.pod != nil:
		w.pods[e.pod.Metadata.Name] = *e.pod
	case e.deleted:
		delete(w.endpoints, e.slice.Metadata.Name)
	default:
		var ready []string
		for _, endpoint := range e.slice.Endpoints {
			if endpoint.Conditions.Ready {
				ready = append(ready, endpoint.TargetRef.Name)
			}
		}
		w.endpoints[e.slice.Metadata.Name] = ready
	}
	w.twice = w.twice || len(w.leaders()) > 1
}

func (w *siteWatch) labeled(pod string) bool { return w.pods[pod].Metadata.Labels["leader"] == "yes" }

// leaders returns the pods that have the label.
func (w *siteWatch) leaders() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		if w.labeled(name) {
			names = append(names, name)
		}
	}
	return names
}

// A siteLeader is the only pod with the label. It is ready, and the only one of the Service.
type siteLeader struct {
	pod                     string
	labeled, ready, reached time.Time
	moved                   time.Time // the last of these
}

// awaitLeader waits for a leader other than the last one.
func (w *siteWatch) awaitLeader(last string) (next siteLeader) {
	w.Helper()
	first := func(at *time.Time, now time.Time) {
		if at.IsZero() {
			*at = now
		}
	}
	moved := w.until("a leader that is not "+cmp.Or(last, "known"), func(at time.Time) bool {
		leaders := w.leaders()
		if len(leaders) != 1 || leaders[0] == last {
			next = siteLeader{}
			return false
		}
		if next.pod != leaders[0] {
			next = siteLeader{pod: leaders[0], labeled: at}
		}
		ready := w.pods[next.pod].ready()
		if ready {
			first(&next.ready, at)
		}
		reached := slices.Equal(slices.Concat(slices.Collect(maps.Values(w.endpoints))...), []string{next.pod})
		if reached {
			first(&next.reached, at)
		}
		return ready && reached
	})
	next.moved = moved
	return next
}

// moves stops the leader until the label, the readiness and the Service have once moved within the
// limit, or most times. Then the fastest may be as late as a busy machine is. stop returns when the
// leader was stopped.
func (w *siteWatch) moves(most int, limit time.Duration, stop func(leader string) time.Time) {
	w.Helper()
	best := patience
	for range most {
		w.running(sites, 3) // all of them campaign
		w.settle()
		last := w.awaitLeader("").pod
		w.twice = false
		at := stop(last)
		next := w.awaitLeader(last)
		took := next.moved.Sub(at)
		w.Logf("%s was stopped; %s had the label after %s, was ready after %s, and the Service had it after %s",
			last, next.pod, next.labeled.Sub(at), next.ready.Sub(at), next.reached.Sub(at))
		if w.twice && took < unanswered {
			w.Error("two pods had the label at once")
		}
		w.works(next.pod)
		if best = min(best, took); best <= limit {
			return
		}
	}
	if best > limit+lateness {
		w.Errorf("the fastest of %d hand-overs took %s; want at most %s, and %s more on a busy machine", most, best, limit, lateness)
	}
}

// works waits for the work of the leader, and for its answer through the Service.
func (w *siteWatch) works(leader string) {
	w.Helper()
	w.await("the work of "+leader, func() bool {
		return strings.Contains(w.kubectl("logs", leader, "-c", "site"), `"identity":"`+leader+`","leading":true,"token":`)
	})
	w.await("an answer of "+leader, func() bool {
		answer, err := w.try("", "kubectl", "get", "--raw", "/api/v1/namespaces/"+w.namespace+"/services/site:80/proxy/")
		return err == nil && answer == leader+"\n"
	})
}
