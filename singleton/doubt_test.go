package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// The holder of a tick is killed, perhaps after its effect, and all others fail: the
// tick is recorded as unknown, never as failed, and so it is counted. The next tick,
// at which all fail and nobody is killed, has failed.
// Mutants: the last one's failure is the tick's; the metric has another outcome than
// the ledger.
func TestFault54_ACrashAndThenFailuresIsUnknown(t *testing.T) {
	inFleets(t, func(t *testing.T, f *fleet) {
		regs, all := map[string]*prometheus.Registry{}, map[string]*replica{}
		var cut *lockcoretest.Rule
		for _, name := range []string{"a", "b", "c"} {
			regs[name] = prometheus.NewRegistry()
			r := f.replica(name, singleton.Config{Registerer: regs[name]})
			all[name] = r
			r.add("draw", "@every 1s", func(ctx context.Context, run singleton.Run) error {
				if cut == nil {
					cut = all[run.Holder].die()
					<-ctx.Done()
				}
				return errors.New("boom")
			}, singleton.JobConfig{MaxAttempts: 3, Retry: time.Millisecond})
		}
		for _, r := range all {
			r.run()
		}
		records := f.recorded("draw", 3)
		var runs []lockcore.RunRecord
		for _, r := range records {
			if r.Count == 0 {
				runs = append(runs, r)
			}
		}
		if runs[0].Outcome != lockcore.OutcomeUnknown || runs[0].Attempt != 3 || runs[0].Error != "boom" {
			t.Errorf("after the crash: %+v", runs[0])
		}
		if runs[1].Outcome != lockcore.OutcomeFailed {
			t.Errorf("without a crash: %+v", runs[1])
		}
		f.until("the metrics tell it", func() bool {
			unknown, failed := 0.0, 0.0
			for _, reg := range regs {
				u, _ := metric(t, reg, "noonlock_job_runs_total", "outcome", "unknown")
				f, _ := metric(t, reg, "noonlock_job_runs_total", "outcome", "failed")
				unknown, failed = unknown+u, failed+f
			}
			return unknown == 1 && failed >= 1
		})
		lockcoretest.MustFire(t, cut)
	})
}

// The same of a Once: who fails after another has died is told that nobody knows, and
// so are those who waited.
func TestOnceFailureAfterACrashIsUnknown(t *testing.T) {
	fleetInBubble(t, func(t *testing.T, f *serviceFleet) {
		c, faults := f.linked("dies")
		begun := make(chan struct{})
		f.do(f.once(c, singleton.OnceConfig{}), func(ctx context.Context, _ uint64) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
		<-begun
		f.kill(faults)
		fails := func(context.Context, uint64) error { return errBroken }
		for _, name := range []string{"b", "c"} {
			run := f.do(f.once(f.client(name), singleton.OnceConfig{}), fails)
			if name == "b" {
				continue
			}
			if failed := onceFailure(t, run.result()); failed.Outcome != lockcore.OutcomeUnknown || failed.Attempt != 2 || failed.Reason != errBroken.Error() {
				t.Errorf("%s is told %+v", name, failed)
			}
		}
	})
}
