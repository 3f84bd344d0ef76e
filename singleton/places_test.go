package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// most returns how many entries of a replica there were at a time.
func most(entries []entry, replica string) (n int) {
	for _, x := range entries {
		at := 0
		for _, y := range entries {
			if y.replica == replica && !y.begin.After(x.begin) && (y.end.IsZero() || y.end.After(x.begin)) {
				at++
			}
		}
		n = max(n, at)
	}
	return n
}

// toTick returns the time until a second after the next tick of "*/10 * * * *".
func (f *fleet) toTick() time.Duration {
	now := time.Now()
	return now.Truncate(10 * time.Minute).Add(10*time.Minute + time.Second).Sub(now)
}

func pass(_ context.Context, _ singleton.Run) error {
	time.Sleep(3 * time.Second)
	return nil
}

// Many jobs are due at one time. Each tick runs once, no more run at a time on a replica than it allows, and all replicas take
// part. Those that wait hold no lease, and a replica with free places runs them.
func TestMaxConcurrentRuns(t *testing.T) {
	const jobs, each = 60, 3
	inBubble(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{MaxConcurrentRuns: each})
			for i := range jobs {
				r.add(fmt.Sprint("job-", i), "*/10 * * * *", pass, singleton.JobConfig{})
			}
			r.run()
		}
		f.Pass(f.toTick() + 2*time.Minute)
		all, ran := f.book.all(), map[string]int{}
		for _, x := range all {
			ran[x.run.Job]++
		}
		if len(ran) != jobs || len(all) != jobs {
			t.Errorf("%d jobs had %d runs", len(ran), len(all))
		}
		for name, r := range f.all {
			testenv.Equal(t, "runs at a time on "+name, most(all, name), each)
			r.stop()
		}
		full, free := f.replica("full", singleton.Config{MaxConcurrentRuns: 1}), f.replica("free", singleton.Config{})
		for _, name := range []string{"one", "two", "three"} {
			full.add(name, "*/10 * * * *", hang(1), singleton.JobConfig{})
			free.add(name, "*/10 * * * *", nil, singleton.JobConfig{})
		}
		full.run()
		f.Pass(f.toTick())
		free.run()
		f.Pass(time.Minute)
		ran = map[string]int{}
		for _, x := range f.book.all()[jobs:] {
			ran[x.replica]++
		}
		if ran["full"] != 1 || ran["free"] != 2 {
			t.Errorf("the runs are %v, want 1 of full and 2 of free", ran)
		}
	})
}

// The place is given in the order in which runs need one: of new ticks, of the run of a dead replica, and of a trigger. Those that
// wait send no claim.
func TestPlacesAreGivenInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		full, dies := f.replica("full", singleton.Config{MaxConcurrentRuns: 1}), f.replica("dies", singleton.Config{})
		full.add("holds", "1 0 * * *", sleep(9*time.Minute), singleton.JobConfig{})
		full.add("d", "2 0 * * *", sleep(time.Second), singleton.JobConfig{})
		full.add("c", "3 0 * * *", sleep(time.Second), singleton.JobConfig{})
		dies.add("c", "3 0 * * *", hang(1), singleton.JobConfig{})
		full.add("b", "4 0 * * *", sleep(time.Second), singleton.JobConfig{})
		full.add("a", "@yearly", sleep(time.Second), singleton.JobConfig{})
		full.run()
		dies.run()
		f.Pass(3*time.Minute + 40*time.Second)
		dies.die()
		f.Pass(time.Minute)
		testenv.Call(f.job("a").Trigger(f.Context())).Must(t)
		f.Pass(time.Second)
		claims := full.claims()
		f.Pass(5 * time.Minute)
		testenv.Equal(t, "claims without a place", claims(), 0)
		f.Pass(time.Minute)
		var order []string
		for _, e := range f.book.all() {
			order = append(order, fmt.Sprint(e.run.Job, e.run.Attempt))
		}
		testenv.Equal(t, "the order", strings.Join(order, " "), "holds1 c1 d1 c2 b1 a1")
	})
}

// The place of a run, on a replica with one. The first job is due ten minutes before the second one. When no run needs the place
// any more, the third job gets it.
func TestPlacesOfRuns(t *testing.T) {
	for name, row := range map[string]struct {
		first, second func(ctx context.Context, run singleton.Run) error
		cfg           singleton.JobConfig // of the second job
		cancel        bool                // of the first run, when its retry waits for the place
		want          string              // the newest entries of the jobs
	}{
		"a pause between attempts needs none": {
			first: func(context.Context, singleton.Run) error { return errBroken },
			want:  " succeeded:",
		},
		"a run that waits begins in time, or never": {
			first: hang(1), cfg: singleton.JobConfig{StartingDeadline: 10 * time.Second},
			want: " skipped:deadline",
		},
		"a retry waits for the place, and is canceled": {
			first: func(context.Context, singleton.Run) error { return errBroken }, second: hang(1), cancel: true,
			want: "failed:canceled; broken on purpose ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				r := f.replica("a", singleton.Config{MaxConcurrentRuns: 1})
				r.add("first", "1 0 * * *", row.first, singleton.JobConfig{Retry: 15 * time.Minute})
				r.add("second", "11 0 * * *", row.second, row.cfg)
				r.add("third", "20 0 * * *", nil, singleton.JobConfig{})
				r.run()
				f.Pass(12 * time.Minute)
				if row.cancel {
					f.Pass(5 * time.Minute)
					_, err := f.job("first").Cancel(f.Context(), singleton.RunID{Tick: f.book.all()[0].run.Tick})
					testenv.Must(t, err)
					f.Pass(time.Second)
				}
				var got strings.Builder
				for _, job := range []string{"first", "second"} {
					for _, e := range f.runs(job) {
						fmt.Fprint(&got, e.Outcome, ":", e.Error)
					}
					got.WriteByte(' ')
				}
				testenv.Equal(t, "the histories", strings.TrimSpace(got.String()), strings.TrimSpace(row.want))
				for _, job := range []string{"first", "second"} {
					_, _ = f.job(job).Cancel(f.Context(), singleton.RunID{}) // which may not be running
				}
				f.Pass(10 * time.Minute)
				testenv.Equal(t, "runs of the third job", len(f.ticks("third")), 1)
			})
		})
	}
}
