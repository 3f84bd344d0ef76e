package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// have counts the series of a job.
func (r *replica) have(job string) (n int) {
	r.f.Helper()
	for _, family := range testenv.Call(r.reg.Gather()).Must(r.f) {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "name" && l.GetValue() == job {
					n++
				}
			}
		}
	}
	return n
}

// Jobs are added to a Runner that runs, get another definition, and are removed.
// Mutants: a run that has begun gets the new work; the former definition runs the next tick; a removed job has no drain,
// or its run ends with the replica; its series stay, or end although it was added again.
func TestJobsComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.apart = true
		a := f.replica("a", singleton.Config{Drain: 5 * time.Second})
		testenv.MustIs(t, a.runner.Ready(), singleton.ErrNotReady)
		a.run()
		f.Until("a Runner without jobs is ready", func() bool { return a.runner.Ready() == nil })
		f.Pass(time.Hour)

		first := make(chan error)
		a.add("draw", "@every 1m", func(context.Context, singleton.Run) error { return <-first }, singleton.JobConfig{})
		f.within("the first tick of an added job began", f.begun("draw", 1)[0].late(), time.Second)
		ended := make(chan error, 10)
		second := a.noted(func(ctx context.Context, _ singleton.Run) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		testenv.Must(t, a.runner.Update("draw", "@every 30s", second, singleton.JobConfig{Revision: 2}))
		f.Pass(2 * time.Minute)
		first <- errBroken
		runs := f.begun("draw", 2) // the next attempt is one of the new work
		if runs[1].run.Key() != runs[0].run.Key() || runs[1].run.Attempt != 2 {
			t.Errorf("the runs are %+v", runs)
		}

		f.replica("b", singleton.Config{}).add("draw", "@every 30s", nil, singleton.JobConfig{Revision: 2})
		f.all["b"].run()
		f.Until("b is ready", func() bool { return f.all["b"].runner.Ready() == nil })
		removed := time.Now()
		testenv.Must(t, a.runner.Remove("draw"))
		testenv.Must(t, a.runner.Ready())
		testenv.MustIs(t, <-ended, singleton.ErrRemoved)
		testenv.Equal(t, "the drain", time.Since(removed), 5*time.Second)
		if e := f.begun("draw", 3)[2]; e.replica != "b" || e.run.Key() != runs[1].run.Key() || e.run.Attempt != 3 {
			t.Errorf("after it was removed from a: %+v", e)
		}
		f.Until("the series end", func() bool { return a.have("draw") == 0 })

		a.add("draw", "@every 1h", nil, singleton.JobConfig{})
		n := a.have("draw")
		testenv.Must(t, a.runner.Remove("draw"))
		a.add("draw", "@every 30s", nil, singleton.JobConfig{Revision: 2})
		f.all["b"].stop()
		f.Pass(2 * time.Minute)
		testenv.Equal(t, "the replica after it was added again", f.newest().replica, "a")
		if now := a.have("draw"); now < n {
			t.Errorf("%d series, then %d", n, now)
		}

		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				name := fmt.Sprint("job", i)
				a.add(name, "@every 1s", nil, singleton.JobConfig{})
				testenv.Must(t, a.runner.Update(name, "@every 2s", a.noted(nil), singleton.JobConfig{}))
				testenv.Must(t, a.runner.Remove(name))
				a.add(name, "@every 3s", nil, singleton.JobConfig{})
			})
		}
		all.Wait()
		f.Until("all of them run", func() bool {
			n := 0
			for i := range 20 {
				n += min(1, len(f.ticks(fmt.Sprint("job", i))))
			}
			return n == 20 && a.runner.Ready() == nil
		})
		testenv.Must(t, a.runner.Remove("job1"))
		a.stop()
		testenv.Must(t, a.runner.Remove("job2"))
		if a.have("job1")+a.have("job2") > 0 || a.have("job3") == 0 {
			t.Error("series after Run")
		}
	})
}

// Sums do not decrease when a job is removed.
func TestSumsOfRemovedJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{Registerer: f.reg, SumMetrics: true})
		r := testenv.Call(singleton.NewRunner(c, singleton.Config{})).Must(t)
		a := &replica{f: f, name: "a", runner: r}
		a.add("draw", "@every 1m", nil, singleton.JobConfig{})
		a.add("other", "@every 1h", nil, singleton.JobConfig{})
		a.run()
		f.recorded("draw", 2)
		testenv.Must(t, a.runner.Remove("draw"))
		f.Pass(time.Minute)
		if n, _ := testenv.Series(t, f.reg, "noonlock_job_runs_total", "outcome", "succeeded"); n < 2 {
			t.Errorf("%v runs", n)
		}
	})
}
