package singleton_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/singleton"
)

// skips returns the entries of skipped ticks, oldest first, and their number in the
// replica's metrics.
func (f *fleet) skips(job string, metrics *prometheus.Registry) []string {
	f.Helper()
	var found []string
	sums := map[string]int{}
	for _, r := range f.runs(job) {
		if r.Count > 0 {
			found = append(found, fmt.Sprintf("%d %s", r.Count, r.Error))
			sums[r.Error] += r.Count
		}
	}
	var want strings.Builder
	for _, reason := range []string{"deadline", "missed", "overlap", "paused"} {
		fmt.Fprintf(&want, "noonlock_job_skipped_ticks_total{name=%q,reason=%q} %d\n", job, reason, sums[reason])
	}
	head := "# HELP noonlock_job_skipped_ticks_total Ticks that this replica recorded as skipped, by reason: missed, overlap, deadline, paused.\n" +
		"# TYPE noonlock_job_skipped_ticks_total counter\n"
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(head+want.String()), "noonlock_job_skipped_ticks_total"); err != nil {
		f.Error(err)
	}
	return found
}

// Each skipped tick is in the ledger with its own reason, whatever else happened to the job
// before a replica could skip it.
// Mutants: one reason for all of them, that of the last or of the first; a pause, or a run,
// counts from the beginning of time; a takeover extends the hold of a replica that died
// long ago.
func TestEachSkipHasItsReason(t *testing.T) {
	const tick = time.Minute
	type scene struct {
		*fleet
		a    *replica
		hang chan time.Duration // how long the next attempts take; negative: forever
	}
	pause := func(s scene, d time.Duration) {
		job := s.job("draw")
		if err := job.Pause(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.Pass(d)
		if err := job.Resume(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
	betweenTicks := func(f *fleet) { f.Pass(time.Until(time.Now().Truncate(tick).Add(tick / 2))) }
	away := func(s scene) {
		s.recorded("draw", 1)
		s.a.stop()
		betweenTicks(s.fleet)
	}
	for _, c := range []struct {
		name string
		cfg  singleton.JobConfig
		// happen runs before b starts, in the middle between two ticks.
		happen func(s scene)
		want   []string
	}{
		{"all were away", singleton.JobConfig{}, func(s scene) {
			away(s)
			s.Pass(time.Hour)
		}, []string{"59 missed"}},
		{"the only replica died in a tick, and its successor takes long", singleton.JobConfig{}, func(s scene) {
			s.hang <- -1
			s.begun("draw", 1)
			s.a.die()
			s.a.stop()
			s.Pass(time.Hour)
			s.hang <- 10 * tick
		}, []string{"60 missed", "9 overlap"}},
		{"at most once, the only one died late in a long run", singleton.JobConfig{MaxAttempts: 1}, func(s scene) {
			s.hang <- -1
			s.begun("draw", 1)
			s.Pass(10 * tick)
			s.a.die()
			s.a.stop()
			s.Pass(time.Hour)
		}, []string{"10 overlap", "59 missed"}},
		{"all of it, with a deadline", singleton.JobConfig{StartingDeadline: 20*tick + tick/2}, func(s scene) {
			away(s)
			s.Pass(10 * tick)
			pause(s, 10*tick)
			s.Pass(40 * tick)
		}, []string{"10 deadline", "10 paused", "19 deadline", "20 missed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				s := scene{f, nil, make(chan time.Duration, 2)}
				work := func(ctx context.Context, run singleton.Run) error {
					select {
					case d := <-s.hang:
						if d < 0 {
							d = 1000 * time.Hour
						}
						return sleep(d)(ctx, run)
					default:
						return nil
					}
				}
				s.a = f.replica("a", singleton.Config{})
				s.a.add("draw", "@every 1m", work, c.cfg)
				betweenTicks(f)
				s.a.run()
				c.happen(s)
				betweenTicks(f)
				metrics := prometheus.NewRegistry()
				b := f.replica("b", singleton.Config{}, metrics)
				b.add("draw", "@every 1m", work, c.cfg)
				b.run()
				f.Pass(20 * tick)
				if got := f.skips("draw", metrics); !slices.Equal(got, c.want) {
					t.Errorf("skipped were %q, want %q", got, c.want)
				}
				f.proven("draw", every(t, tick))
			})
		})
	}
}
