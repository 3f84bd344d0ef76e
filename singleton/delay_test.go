package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// An old snapshot is restored, and the replica that looks first does not know of the latest
// runs. With LockDelay it claims nothing before the other replica has reported them. Without
// LockDelay, it runs these ticks again.
func TestFault89_ReplicasReportBeforeTheyClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.delay = 3 * time.Second
		all := f.start("ab", "@every 500ms", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		knows, first := all["a"], all["b"]
		f.recorded("draw", 10) // the ticks of the first delay run at once; the partition comes after them
		cut := first.net.Partition()
		restore := f.snapshot("draw")
		n := len(f.recorded("draw", len(f.runs("draw"))+5))
		reports := knows.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: f.request("open")})
		first.net.Heal()
		first.net.Cut()
		restore()
		testenv.Must(t, f.Bubble.Restart())
		f.Until("the report is under way", func() bool { return reports.Fired() > 0 })
		time.Sleep(f.delay / 4)
		reports.Lift()
		f.recorded("draw", n+5)
		f.ranOnce("draw")
		tokens(f, "draw")
		if f.log.Count("b: ", "grants delayed") == 0 {
			t.Error("the delay was not logged")
		}
		f.log.Lines(t, 0, "ledger unavailable", "LockDelay")
		lockcoretest.MustFire(t, cut, reports)
	})
}

// During the delay a replica is ready. Then each job runs.
func TestLockDelayOfJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.delay = 20 * time.Second
		r := f.start("a", "@every 5s", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})["a"]
		f.Pass(10 * time.Second)
		if err := r.runner.Ready(); err != nil || len(f.book.all()) > 0 {
			t.Errorf("during the delay, %d runs have begun, and Ready is %v", len(f.book.all()), err)
		}
		testenv.Must(t, f.once(r.client).Once(t.Context(), "migrate-7", func(context.Context) error { return nil }))
		if f.Clock() < 15*time.Second {
			t.Errorf("Once returned after %v", f.Clock())
		}
		f.recorded("draw", 4)
		f.ranOnce("draw")
	})
}
