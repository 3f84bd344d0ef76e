package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A tick that may not overlap waits for the one before it. Of the ticks that became due in
// the meantime, all but the last are skipped.
// Mutant: forbid does not check open runs.
func TestOverlap(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		f.three("@every 200ms", sleep(500*time.Millisecond), singleton.JobConfig{})
		f.recorded("draw", 6)
		f.alone("draw")
		f.proven("draw", every(t, 200*time.Millisecond))
		skipped := 0
		for _, r := range f.runs("draw") {
			if r.Count > 0 {
				// On a machine that stalls, the run of the tick before it may begin after it is due.
				if r.Error == "overlap" {
					skipped++
				} else if r.Error != "missed" || f.Bubble != nil {
					t.Errorf("skipped for %q: %+v", r.Error, r)
				}
			}
		}
		if skipped == 0 {
			t.Error("no tick was skipped although each run takes three intervals")
		}
	})
}

// With OverlapAllow ticks are run at once, also on one replica.
// Mutant: they wait for the one before.
func TestOverlapAllowed(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 200ms", sleep(500*time.Millisecond), singleton.JobConfig{AllowOverlap: true})
		r.run()
		f.recorded("draw", 4)
		f.Until("three runs have begun while the one before was under way", func() bool {
			together := 0
			entries := f.book.all()
			for i := 1; i < len(entries); i++ {
				if entries[i-1].end.IsZero() || entries[i].begin.Before(entries[i-1].end) {
					together++
				}
			}
			return together >= 3
		})
		f.proven("draw", every(t, 200*time.Millisecond))
	})
}

// With OverlapAllow a dead holder's tick is taken over while later ones are run.
// Mutants: only the newest tick is remembered; the later ones wait for it.
func TestFault54_OverlappingTicks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		victim := ""
		all := f.three("@every 1s", func(ctx context.Context, run singleton.Run) error {
			if victim == "" {
				victim = f.book.all()[0].replica
			}
			if f.book.all()[0].run.Tick.Equal(run.Tick) && run.Attempt == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, singleton.JobConfig{AllowOverlap: true})
		first := f.begun("draw", 1)[0]
		f.recorded("draw", 5)
		died := time.Now()
		cut := all[first.replica].die()
		f.Until("the tick is taken over", func() bool { return len(f.ticks("draw")[first.run.Tick.UnixMilli()]) == 2 })
		if took := time.Since(died); took > 2500*time.Millisecond {
			t.Errorf("the takeover took %v", took)
		}
		f.recorded("draw", 10)
		f.proven("draw", every(t, time.Second))
		lockcoretest.MustFire(t, cut)
	})
}
