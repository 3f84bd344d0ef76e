package singleton_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// versioned makes a replica with a definition of its own.
func (f *fleet) versioned(name, schedule, revision string) *replica {
	f.Helper()
	r := f.replica(name, singleton.Config{})
	r.add("draw", schedule, nil, singleton.JobConfig{Revision: revision})
	r.run()
	f.pass(10 * time.Millisecond) // so that the next one starts after it
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

// A new version is rolled out, and rolled back: the one that started last claims,
// the others stop and say so; when the newest are gone, those that are left go on
// at once. No tick is run twice, none is missed.
// Mutants: the older goes on; the newest start does not win; nobody goes on; it
// takes the lapse although the last one has said goodbye.
func TestRollingDeploy(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		a1 := f.versioned("old-1", "@every 1s", "1")
		a2 := f.versioned("old-2", "@every 1s", "1")
		f.begun("draw", 3)
		if st := f.status("draw"); st.Generation != 1 || st.Replicas != 2 {
			t.Errorf("two of one version: %+v", st)
		}
		b1 := f.versioned("new-1", "@every 1s", "2")
		f.pass(100 * time.Millisecond)
		n := len(f.book.all())
		f.begun("draw", n+5)
		if by := f.by(n); by["new-1"] < 5 || len(by) != 1 {
			t.Errorf("after the new version has started: %v", by)
		}
		if got := f.log.count("another definition of the job is in use"); got != 2 {
			t.Errorf("%d replicas said that they stop claiming", got)
		}
		// Another of the new one, and one of the old is gone: nothing changes.
		b2 := f.versioned("new-2", "@every 1s", "2")
		a1.stop()
		f.pass(5 * time.Second)
		if st := f.status("draw"); st.Generation != 2 || st.Replicas != 2 {
			t.Errorf("two of the new version: %+v", st)
		}
		// The roll-out is broken off: those of the new version end.
		b1.stop()
		b2.stop()
		stopped, n := time.Now(), len(f.book.all())
		entries := f.begun("draw", n+3)
		if by := f.by(n); by["old-2"] < 3 {
			t.Errorf("after the new version was withdrawn: %v", by)
		}
		if took := entries[n].begin.Sub(stopped); took > 1500*time.Millisecond {
			t.Errorf("the old version went on after %v", took)
		}
		// A roll-back by new processes of the old definition is a start, too.
		b3 := f.versioned("new-3", "@every 1s", "2")
		f.pass(3 * time.Second)
		a3 := f.versioned("old-3", "@every 1s", "1")
		f.pass(100 * time.Millisecond)
		n = len(f.book.all())
		f.begun("draw", n+6)
		if by := f.by(n); by["new-3"] != 0 || by["old-2"]+by["old-3"] < 6 {
			t.Errorf("after the roll-back: %v", by)
		}
		_, _, _ = a2, a3, b3
		f.once("draw")
		f.proven("draw", every(t, time.Second))
	})
}

// The replicas of the newest version are killed and say nothing: after a lapse the
// older ones go on.
// Mutant: only a goodbye makes them.
func TestDeadGeneration(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		f.versioned("old", "@every 1s", "1")
		b := f.versioned("new", "@every 1s", "2")
		f.pass(5 * time.Second)
		died, n := time.Now(), len(f.book.all())
		cut := b.die()
		entries := f.begun("draw", n+2)
		last := entries[len(entries)-1]
		if took := last.begin.Sub(died); last.replica != "old" || took > 125*time.Second || took < 60*time.Second {
			t.Errorf("%s went on after %v", last.replica, took)
		}
		f.proven("draw", every(t, time.Second))
		lockcoretest.MustFire(t, cut)
	})
}

// The server loses its data in the midst of a roll-out: the newest version is the
// newest one still, whoever comes first.
// Mutant: the generation is not remembered.
func TestFault23_ClassD_GenerationsAfterALoss(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		f.versioned("old", "@every 1s", "1")
		b := f.versioned("new", "@every 1s", "2")
		f.pass(5 * time.Second)
		cut := b.net.Partition()
		f.raw.FlushAll(t.Context())
		f.pass(40 * time.Second) // the old one looks, and is alone
		b.net.Heal()
		f.pass(30 * time.Second)
		n := len(f.book.all())
		f.begun("draw", n+5)
		if by := f.by(n); by["new"] < 5 {
			t.Errorf("after the loss: %v", by)
		}
		lockcoretest.MustFire(t, cut)
	})
}

// A job that is no longer in the code is left in peace: its ledger stays, nobody
// touches it, and it ends with its retention. One that is run, or paused, stays.
// Mutants: a look does not keep the ledger alive; a paused one is not kept.
func TestRetention(t *testing.T) {
	bubbleFleet(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("old", "@every 1m", nil, singleton.JobConfig{})
		r.add("held", "@every 1m", nil, singleton.JobConfig{})
		r.run()
		f.recorded("old", 2)
		f.recorded("held", 2)
		if err := f.job("held").Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r = f.replica("b", singleton.Config{})
		// Its ticks are all skipped, so it is kept by being looked at alone.
		r.add("new", "0 12 * * 0", nil, singleton.JobConfig{CatchUp: singleton.CatchUpNone})
		r.run()
		f.pass(time.Second)
		if n := len(f.runs("old")); n != 2 {
			t.Errorf("%d entries of the job that is gone", n)
		}
		for step := 1; step <= 4; step++ { // 64 days
			f.bubble.StepClock(16 * 24 * time.Hour)
			f.pass(40 * time.Second)
			keys := f.raw.Keys(t.Context(), "*{job/old}*").Val()
			if step == 1 && len(f.runs("old")) != 2 || step >= 2 && len(keys) != 0 {
				t.Errorf("after %d days there is %v", 16*step, keys)
			}
		}
		skipped := 0
		for _, r := range f.runs("new") {
			skipped += r.Count
		}
		if skipped < 9 {
			t.Errorf("the ledger of the job that is run knows of %d weeks", skipped)
		}
		if n := len(f.runs("held")); n != 2 {
			t.Errorf("the ledger of the paused job has %d entries", n)
		}
	})
}
