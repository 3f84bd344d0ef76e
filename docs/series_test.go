package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An application that uses one kind of object exposes the series of that kind, and no
// others.
func TestSeriesOfTheKindsInUse(t *testing.T) {
	t.Parallel()
	const ofClient, ofLock = "lease_losses|renewal|handover|lapsed_grants|lock_delays|log_lines|forced_releases", "acquire|leases_held|waiters"
	for name, c := range map[string]struct {
		use  func(ctx context.Context, client *lockcore.Client, works func()) error
		want string // the beginnings of its series, beside those of each Client
		n    int    // of all series
	}{
		"a mutex": {func(ctx context.Context, client *lockcore.Client, works func()) error {
			return client.Do(ctx, "orders", lockcore.LeaseConfig{}, func(context.Context) error { works(); return nil })
		}, ofLock, 18},
		"an election": {func(ctx context.Context, client *lockcore.Client, works func()) error {
			le, err := election.NewLeaderElector(client, "orders", election.Callbacks{
				OnStartedLeading: func(ctx context.Context) { works(); <-ctx.Done() }, OnStoppedLeading: func() {},
			}, election.Config{})
			if err != nil {
				return err
			}
			return le.Run(ctx)
		}, ofLock + "|election", 26},
		"a job": {func(ctx context.Context, client *lockcore.Client, works func()) error {
			r, err := singleton.NewRunner(client, singleton.Config{})
			if err != nil {
				return err
			}
			err = r.Add("draw", "* * * * *", func(context.Context, singleton.Run) error { works(); return nil }, singleton.JobConfig{})
			return errors.Join(err, r.Run(ctx))
		}, "leases_held|job", 38},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.InBubble(t, func(e *testenv.Env) {
				reg := prometheus.NewRegistry()
				client := e.ClientWith(e.Direct(), lockcore.Config{Registerer: reg})
				ctx, cancel := context.WithTimeout(e.Context(), 10*time.Minute+30*time.Second) // between two ticks
				defer cancel()
				worked := 0
				testenv.Must(e, c.use(ctx, client, func() { worked++ }))
				if worked == 0 {
					e.Error("it did not work")
				}
				seen, all := map[string]bool{}, regexp.MustCompile(`^(?:noonlock_|leader_)(`+ofClient+"|"+c.want+`)`)
				got := series(e.T, reg)
				for _, one := range got {
					found := all.FindStringSubmatch(one)
					if found == nil {
						e.Errorf("there is the series %s", one)
						continue
					}
					seen[found[1]] = true
				}
				if len(got) != c.n {
					e.Errorf("%d series, want %d:\n%s", len(got), c.n, strings.Join(got, "\n"))
				}
				for part := range strings.SplitSeq(ofClient+"|"+c.want, "|") {
					if !seen[part] {
						e.Errorf("there is no series of %s", part)
					}
				}
			})
		})
	}
}

// docs/METRICS.md has the size of /metrics for 1,000 jobs, with and without Config.SumMetrics. With it, the
// size does not depend on the number of jobs.
func TestSizeOfMetrics(t *testing.T) {
	t.Parallel()
	text := testenv.Call(os.ReadFile("METRICS.md")).Must(t)
	documented := regexp.MustCompile(`1,000 jobs has ([\d,]+) lines, and with .lockcore.Config.SumMetrics., for any number of jobs, (\d+)\.`).FindSubmatch(text)
	if documented == nil {
		t.Fatal("METRICS.md does not have the sizes")
	}
	many, _ := strconv.Atoi(strings.ReplaceAll(string(documented[1]), ",", ""))
	sums, _ := strconv.Atoi(string(documented[2]))
	for _, c := range []struct {
		jobs, lines int
		sum         bool
	}{{1000, many, false}, {1000, sums, true}, {1, sums, true}} {
		t.Run(fmt.Sprintf("%d jobs, sums %t", c.jobs, c.sum), func(t *testing.T) {
			testenv.InBubble(t, func(e *testenv.Env) {
				reg := prometheus.NewRegistry()
				client := e.ClientWith(e.Direct(), lockcore.Config{Registerer: reg, SumMetrics: c.sum})
				r := testenv.Call(singleton.NewRunner(client, singleton.Config{})).Must(e)
				var ran atomic.Int64
				work := func(context.Context, singleton.Run) error { ran.Add(1); return nil }
				for i := range c.jobs {
					testenv.Must(e, r.Add(fmt.Sprint("draw", i), "* * * * *", work, singleton.JobConfig{}))
				}
				ctx, cancel := context.WithTimeout(e.Context(), 90*time.Second)
				defer cancel()
				testenv.Must(e, r.Run(ctx))
				answer := httptest.NewRecorder()
				promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(e.Context(), "GET", "/metrics", nil))
				page := answer.Body.String()
				testenv.Equal(e, "lines of /metrics", strings.Count(page, "\n"), c.lines)
				if c.sum && !strings.Contains(page, fmt.Sprintf("\nnoonlock_job_runs_total{outcome=\"succeeded\"} %d\n", ran.Load())) {
					e.Errorf("of %d runs: %s", ran.Load(), page)
				}
				if ran.Load() < int64(c.jobs) {
					e.Errorf("%d runs of %d jobs", ran.Load(), c.jobs)
				}
			})
		})
	}
}

// series returns the names of all series, with the values of their labels.
func series(t *testing.T, reg *prometheus.Registry) (all []string) {
	t.Helper()
	families := testenv.Call(reg.Gather()).Must(t)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if len(values) > 0 {
				name = fmt.Sprintf("%s{%s}", name, strings.Join(values, ","))
			}
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
