package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Ready returns an error while no tick can be run, although the server answers: before Run,
// on a read-only server, with a newer schema, with a key of another type, without the
// rights, and when the runner stops. One job that cannot be run is enough.
// Mutants: Ready only requires any answer; an old error counts forever.
func TestFault77_NotReadyWhileNothingCanRun(t *testing.T) {
	t.Parallel()
	const job = "noonlock:{job/draw}:job"
	fails := func(text string) func(f *fleet) {
		return func(f *fleet) { f.Bubble.Server().SetError(text) }
	}
	for name, test := range map[string]struct {
		breaks func(f *fleet)
		mends  func(f *fleet)
		says   string
	}{
		"a read-only replica": {fails("READONLY You can't write against a read only replica."), fails(""), "READONLY"},
		"no rights":           {fails("NOPERM this user has no permissions"), fails(""), "NOPERM"},
		"a newer schema": {
			func(f *fleet) { f.Raw.HSet(f.Context(), job, "v", "999") },
			func(f *fleet) { f.Raw.Del(f.Context(), job) }, "newer schema",
		},
		"another type": {
			func(f *fleet) { f.Raw.Del(f.Context(), job); f.Raw.Set(f.Context(), job, "x", 0) },
			func(f *fleet) { f.Raw.Del(f.Context(), job) }, "WRONGTYPE",
		},
		"no claims": {func(f *fleet) { f.refuses("claim") }, func(f *fleet) { f.refuses("") }, "NOPERM"},
		"silence":   {func(f *fleet) { f.Bubble.Hang() }, func(f *fleet) { f.Bubble.Unhang() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				r, err := singleton.NewRunner(f.ClientWith(f.Direct(), lockcore.Config{Logger: f.log.Info("")}), singleton.Config{})
				testenv.Must(t, err)
				for _, job := range []string{"other", "draw"} {
					testenv.Must(t, r.Add(job, "@every 1m", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}))
				}
				testenv.MustIs(t, r.Ready(), singleton.ErrNotReady)
				early := name != "no claims" // its scripts are not known before they were sent
				if early {
					test.breaks(f)
				}
				run := f.run(r.Run)
				if !early {
					f.Pass(5*time.Minute + 10*time.Second)
					test.breaks(f)
				}
				for range 2 {
					f.Pass(100 * time.Second)
					if err := r.Ready(); err == nil || !strings.Contains(err.Error(), test.says) {
						t.Errorf("while it cannot run, Ready says %v", err)
					}
					test.mends(f)
					f.Pass(5*time.Minute + 10*time.Second)
					testenv.Must(t, r.Ready())
					test.breaks(f)
				}
				test.mends(f)
				run.cancel()
				testenv.Must(t, run.result())
				testenv.MustIs(t, r.Ready(), singleton.ErrNotReady)
				if logged, lasting := f.log.Count(`"error"=`), name != "a read-only replica" && name != "silence"; (logged > 0) != lasting {
					t.Errorf("%d errors are logged:\n%s", logged, f.log.String())
				}
			})
		})
	}
}

// All jobs of a Runner say together, with their number, that the ledger is away and back.
func TestManyJobsLogAnOutageOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		r, jobs := f.replica("a", singleton.Config{}), 100
		for i := range jobs {
			r.add(fmt.Sprint("job-", i), "* * * * *", nil, singleton.JobConfig{})
		}
		r.run()
		f.Until("all jobs are ready", func() bool { return r.runner.Ready() == nil })
		f.Pass(55 * time.Second)
		f.Bubble.Stop()
		f.Pass(10 * time.Second)
		testenv.Must(t, f.Bubble.Start())
		f.Until("all jobs are ready again", func() bool { return r.runner.Ready() == nil })
		f.Pass(time.Second)
		number := fmt.Sprintf(`"jobs"=%d `, jobs)
		if away, back := f.log.Count("ledger unavailable", number, `"err"=`), f.log.Count("ledger available again", number, `"after"=`); away != 1 || back != 1 || f.log.Count("edger ") != 2 {
			t.Errorf("%d lines that the ledger is away, %d that it is back, in\n%s", away, back, f.log.String())
		}
	})
}

// A server without replicas grants no tick and no Once that needs one.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{Identity: "a", MinReplicas: 1, Logger: f.log.Info("")})
		mustNot := func(what string) { t.Errorf("%s ran without a replica", what) }
		r, err := singleton.NewRunner(c, singleton.Config{})
		testenv.Must(t, err)
		testenv.Must(t, r.Add("draw", "@every 1m", func(context.Context, singleton.Run) error { mustNot("a tick"); return nil }, singleton.JobConfig{}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		ended := make(chan error, 2)
		go func() { ended <- r.Run(ctx) }()
		go func() {
			ended <- r.Once(ctx, "migrate", func(context.Context) error { mustNot("the Once"); return nil })
		}()
		time.Sleep(150 * time.Second)
		testenv.MustIs(t, r.Ready(), lockcore.ErrNotReplicated)
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lockcore.ErrNotReplicated) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}
