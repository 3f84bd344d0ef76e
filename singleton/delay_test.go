package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// An old snapshot is restored, and the replica that looks first does not know of the latest
// runs. With LockDelay it claims nothing before the other replica has reported them. Without
// LockDelay, it runs these ticks again.
func TestFault89_ReplicasReportBeforeTheyClaim(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	f.delay = 3 * time.Second
	all := map[string]*replica{}
	for _, name := range []string{"knows", "first"} {
		r := f.replica(name, singleton.Config{})
		r.add("draw", "@every 500ms", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		r.run()
		all[name] = r
	}
	f.recorded("draw", 10) // the ticks of the first delay run at once; the partition comes after them
	cut := all["first"].net.Partition()
	if err := f.Raw.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ended := map[int64]bool{} // ticks; those that are under way may run again
	for _, run := range f.recorded("draw", len(f.runs("draw"))+5) {
		ended[run.Tick.UnixMilli()] = true
	}
	f.Real.Kill()
	reports := all["knows"].net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: request("open")})
	all["first"].net.Heal()
	all["first"].net.Cut()
	f.Real.Restart(f)
	f.Until("the report is under way", func() bool { return reports.Fired() > 0 })
	time.Sleep(f.delay / 4)
	reports.Lift()
	f.recorded("draw", len(ended)+5)
	for tick, entries := range f.ticks("draw") {
		// The partition may hit a run, which is then taken over.
		takenOver := len(entries) == 2 && entries[0].replica == "first" && entries[1].run.Attempt == 2
		if ended[tick] && len(entries) != 1 && !takenOver {
			t.Errorf("tick %v was run again: %+v", time.UnixMilli(tick).UTC(), entries)
		}
	}
	tokens(f, "draw")
	if f.log.Count("first: ", "grants delayed") == 0 {
		t.Error("the delay was not logged")
	}
	if f.log.Count("ledger request failed", "LockDelay") > 0 {
		t.Error("the delay was logged as a failure")
	}
	lockcoretest.MustFire(t, cut, reports)
}

// During the delay a replica is ready, and Once and Daemon wait, too.
func TestLockDelayOfJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const delay = 20 * time.Second
		f.delay = delay
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@every 5s", nil, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		r.run()
		f.Pass(10 * time.Second)
		if err := r.runner.Ready(); err != nil || len(f.book.all()) > 0 {
			t.Errorf("during the delay, %d runs have begun, and Ready is %v", len(f.book.all()), err)
		}
		once, err := singleton.NewOnce(r.client, "migrate", singleton.OnceConfig{})
		if err != nil {
			t.Fatal(err)
		}
		began := f.Clock()
		if err := once.Do(t.Context(), func(context.Context, uint64) error { return nil }); err != nil || f.Clock()-began < delay/2 {
			t.Errorf("Do returned %v after %v", err, f.Clock()-began)
		}
		f.recorded("draw", 4)
		f.ranOnce("draw")
		if err := f.Bubble.Restart(false); err != nil {
			t.Fatal(err)
		}
		runs := make(chan struct{})
		daemon, err := singleton.NewDaemon(r.client, "sync", func(ctx context.Context, _ uint64) error {
			close(runs)
			<-ctx.Done()
			return nil
		}, singleton.DaemonConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- daemon.Run(ctx) }()
		f.Pass(delay / 4)
		select {
		case <-runs:
			t.Error("the daemon runs during the delay")
		default:
		}
		if err := daemon.Ready(); err != nil {
			t.Errorf("the daemon waits, and Ready is %v", err)
		}
		<-runs
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
