package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// versioned returns a replica with its own definition.
func (f *fleet) versioned(name, schedule, revision string) *replica {
	f.Helper()
	r := f.replica(name, singleton.Config{})
	r.add("draw", schedule, nil, singleton.JobConfig{Revision: revision})
	r.run()
	f.Pass(10 * time.Millisecond) // so the next one starts after it
	return r
}

// by counts the runs of each replica since the n-th.
func (f *fleet) by(n int) map[string]int {
	found := map[string]int{}
	for _, e := range f.book.all()[n:] {
		found[e.replica]++
	}
	return found
}

// A new version is rolled out and rolled back. The version whose oldest replica started last claims
// when it has lived for some seconds; the others stop and log that. When the newest replicas are
// gone, the remaining ones continue at once. No tick is run twice, and none is missed.
// Mutants: the older version continues; a restart of the old version wins; no replica
// continues; the lapse is waited for although the last one has deregistered.
func TestRollingDeploy(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		a1 := f.versioned("old-1", "@every 1s", "1")
		a2 := f.versioned("old-2", "@every 1s", "1")
		f.begun("draw", 3)
		if st := f.status("draw"); len(st.Definitions) != 1 || st.Replicas != 2 {
			t.Errorf("two of one version: %+v", st)
		}
		b1 := f.versioned("new-1", "@every 1s", "2")
		f.Pass(6 * time.Second)
		n := len(f.book.all())
		f.begun("draw", n+5)
		if by := f.by(n); by["new-1"] < 5 || len(by) != 1 {
			t.Errorf("after the new version has started: %v", by)
		}
		if got := f.log.Count("this replica claims no ticks"); got != 2 {
			t.Errorf("%d replicas said that they stop claiming", got)
		}
		// Another new replica starts, and an old one ends: nothing changes.
		b2 := f.versioned("new-2", "@every 1s", "2")
		a1.stop()
		f.Pass(5 * time.Second)
		st := f.status("draw")
		if d := st.Definitions; st.Replicas != 2 || len(d) != 2 || !d[0].Acts || d[0].Replicas[0].Identity != "new-1" || d[0].Replicas[1].Identity != "new-2" || len(d[1].Replicas) != 1 ||
			d[1].Replicas[0].Identity != "old-2" {
			t.Errorf("two of the new version: %+v", st)
		}
		// The rollout is aborted: the replicas of the new version end.
		b1.stop()
		b2.stop()
		stopped, n := time.Now(), len(f.book.all())
		entries := f.begun("draw", n+3)
		if by := f.by(n); by["old-2"] < 3 {
			t.Errorf("after the new version was withdrawn: %v", by)
		}
		if took := entries[n].begin.Sub(stopped); took > 1500*time.Millisecond {
			t.Errorf("the old version continued after %v", took)
		}
		// A restart of the old version while the new one is tried again changes nothing.
		b3 := f.versioned("new-3", "@every 1s", "2")
		f.Pass(3 * time.Second)
		a3 := f.versioned("old-3", "@every 1s", "1")
		f.Pass(7 * time.Second)
		n = len(f.book.all())
		f.begun("draw", n+6)
		if by := f.by(n); by["new-3"] < 6 || len(by) != 1 {
			t.Errorf("after a restart of the old version: %v", by)
		}
		// All of the old version were replaced, so a rollback is a new version, too.
		a2.stop()
		a3.stop()
		a4 := f.versioned("old-4", "@every 1s", "1")
		f.Pass(6 * time.Second)
		n = len(f.book.all())
		f.begun("draw", n+6)
		if by := f.by(n); by["old-4"] < 6 || len(by) != 1 {
			t.Errorf("after the rollback: %v", by)
		}
		_, _ = a4, b3
		f.ranOnce("draw")
		f.proven("draw", every(t, time.Second))
	})
}

// The newest version is in a long run, and messages about the job arrive all the time: it
// looks nevertheless, and does not count as dead.
// Mutant: each message restarts the wait for the next look.
func TestLongRunsAmongMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.versioned("old", "@every 1h", "1")
		b := f.replica("new", singleton.Config{TTL: 20 * time.Second})
		long, short := sleep(10*time.Minute), sleep(time.Second)
		b.add("draw", "@every 1h", func(ctx context.Context, run singleton.Run) error {
			if len(f.book.all()) > 1 {
				return short(ctx, run)
			}
			return long(ctx, run)
		}, singleton.JobConfig{Revision: "2"})
		b.run()
		f.begun("draw", 1)
		for i := range 24 {
			f.Pass(20 * time.Second)
			if _, err := f.job("draw").Trigger(t.Context()); err != nil {
				t.Fatal(err)
			}
			if st := f.status("draw"); st.Replicas != 1 || st.Definitions[0].Replicas[0].Identity != "new" {
				t.Fatalf("after %d s: %+v", 20*(i+1), st)
			}
		}
		f.Until("the triggers are run", func() bool { return len(f.status("draw").Open) == 0 })
		if by := f.by(0); by["old"] != 0 {
			t.Errorf("runs by %v", by)
		}
	})
}
