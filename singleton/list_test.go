package singleton_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton"
)

// Any process can list the jobs and the daemons, also when nothing runs any more.
func TestJobsAndDaemons(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		reader := f.Client("reader")
		check := func(when string, jobs, daemons []string) {
			t.Helper()
			if names, err := singleton.Jobs(t.Context(), reader, nil); err != nil || !slices.Equal(names, jobs) {
				t.Errorf("%s: jobs %q (%v), want %q", when, names, err, jobs)
			}
			if names, err := singleton.Daemons(t.Context(), reader, nil); err != nil || !slices.Equal(names, daemons) {
				t.Errorf("%s: daemons %q (%v), want %q", when, names, err, daemons)
			}
		}
		check("on an empty server", nil, nil)
		r := f.replica("a", singleton.Config{})
		r.add("draw", "@daily", nil, singleton.JobConfig{})
		r.add("räksmörgås/x", "@daily", nil, singleton.JobConfig{})
		r.run()
		if err := f.once(reader, singleton.OnceConfig{}).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		starts := make(chan daemonStart, 1)
		run := f.run(f.daemon(reader, f.steady("d", starts, make(chan error, 1)), singleton.DaemonConfig{}).Run)
		<-starts
		for _, key := range []string{"noonlock:{job/x}:jobs", "noonlock:{job/x}:runs", "noonlock:{jobs/x}:job", "noonlock:{job/x}:lock", "noonlock:{x}:job"} {
			if err := f.Raw.Set(t.Context(), key, 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		jobs := []string{"draw", "once/migrate-7", "räksmörgås/x"}
		f.Until("the jobs have ledgers", func() bool { return f.Exists(f.key("draw", "job")) && f.Exists(f.key("räksmörgås/x", "job")) })
		check("while they run", jobs, []string{"feed"})
		run.end()
		r.stop()
		check("after they have stopped", jobs, []string{"feed"})
	})
}

func TestListsNeedAClient(t *testing.T) {
	t.Parallel()
	if _, err := singleton.Jobs(t.Context(), nil, nil); !errors.Is(err, noonlock.ErrConfig) {
		t.Errorf("Jobs: %v", err)
	}
	if _, err := singleton.Daemons(t.Context(), nil, nil); !errors.Is(err, noonlock.ErrConfig) {
		t.Errorf("Daemons: %v", err)
	}
}
