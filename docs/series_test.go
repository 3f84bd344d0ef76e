package docs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// An application that uses one kind of object exposes the series of that kind, and no
// others.
func TestSeriesOfTheKindsInUse(t *testing.T) {
	t.Parallel()
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// run calls a Run. It ends between two ticks.
	run := func(t *testing.T, f func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+30*time.Second)
		defer cancel()
		must(t, f(ctx))
	}
	ofClient := []string{
		"noonlock_forced_releases_total", "noonlock_handover_seconds", "noonlock_lapsed_grants_total", "noonlock_lock_delays_total",
		"noonlock_lease_losses_total{expired}", "noonlock_lease_losses_total{forced}", "noonlock_lease_losses_total{lost}", "noonlock_lease_losses_total{max_hold}",
		"noonlock_lease_losses_total{not_replicated}",
		"noonlock_log_lines_dropped_total", "noonlock_renewal_lateness_seconds",
		"noonlock_renewals_total{failed}", "noonlock_renewals_total{lost}", "noonlock_renewals_total{not_replicated}", "noonlock_renewals_total{renewed}",
	}
	ofLock := func(kind string) []string {
		return []string{
			"noonlock_acquire_wait_seconds{" + kind + "}", "noonlock_acquires_total{" + kind + ",acquired}",
			"noonlock_leases_held{" + kind + "}", "noonlock_waiters{" + kind + "}",
		}
	}
	for name, c := range map[string]struct {
		use  func(t *testing.T, client *lockcore.Client)
		want []string
	}{
		"a mutex": {func(t *testing.T, client *lockcore.Client) {
			must(t, client.Do(t.Context(), "orders", lockcore.LeaseConfig{}, func(context.Context) error { return nil }))
		}, ofLock("mutex")},
		"an election": {func(t *testing.T, client *lockcore.Client) {
			led := false
			le, err := election.NewLeaderElector(client, "orders", election.Callbacks{
				OnStartedLeading: func(context.Context) { led = true }, OnStoppedLeading: func() {},
			}, election.Config{})
			must(t, err)
			run(t, le.Run)
			if !led {
				t.Error("it did not lead")
			}
		}, append(ofLock("election"),
			"leader_election_master_status{orders}", "noonlock_election_drain_overruns_total{orders}", "noonlock_election_interventions_total{resign,orders}", "noonlock_election_interventions_total{transfer,orders}", "noonlock_election_time_to_lead_seconds{orders}",
			"noonlock_election_transitions_total{gained,orders}", "noonlock_election_transitions_total{lost,orders}", "noonlock_election_transitions_total{released,orders}",
		)},
		"a job": {func(t *testing.T, client *lockcore.Client) {
			ran := 0
			r, err := singleton.NewRunner(client, singleton.Config{})
			must(t, err)
			must(t, r.Add("draw", "* * * * *", func(context.Context, singleton.Run) error { ran++; return nil }, singleton.JobConfig{}))
			run(t, r.Run)
			if ran == 0 {
				t.Error("it did not run")
			}
		}, []string{
			"noonlock_leases_held{run}",
			"noonlock_job_clock_offset_seconds", "noonlock_job_definition_conflicts_total{draw}", "noonlock_job_interventions_total{cancel,draw}", "noonlock_job_interventions_total{pause,draw}", "noonlock_job_interventions_total{rerun,draw}", "noonlock_job_interventions_total{resume,draw}", "noonlock_job_interventions_total{trigger,draw}", "noonlock_job_last_success_timestamp_seconds{draw}",
			"noonlock_job_ledger_losses_total{draw}", "noonlock_job_next_tick_timestamp_seconds{draw}", "noonlock_job_paused{draw}",
			"noonlock_job_attempt_duration_seconds{draw}", "noonlock_job_runs_total{draw,failed}", "noonlock_job_runs_total{draw,succeeded}",
			"noonlock_job_runs_total{draw,unknown}", "noonlock_job_schedule_changes_total{draw}", "noonlock_job_skipped_ticks_total{draw,deadline}", "noonlock_job_skipped_ticks_total{draw,missed}",
			"noonlock_job_skipped_ticks_total{draw,overlap}", "noonlock_job_skipped_ticks_total{draw,paused}",
			"noonlock_job_start_delay_seconds{draw}", "noonlock_job_superseded{draw}", "noonlock_job_takeovers_total{draw}",
		}},
		"a daemon": {func(t *testing.T, client *lockcore.Client) {
			ran := false
			d, err := singleton.NewDaemonRunner(client, "feed", func(ctx context.Context) error {
				ran = true
				<-ctx.Done()
				return nil
			}, singleton.DaemonConfig{})
			must(t, err)
			run(t, d.Run)
			if !ran {
				t.Error("it did not run")
			}
		}, append(ofLock("mutex"),
			"noonlock_daemon_losses_total{feed}", "noonlock_daemon_running{feed}", "noonlock_daemon_starts_total{feed}")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis, reg := lockcoretest.NewRedis(t), prometheus.NewRegistry()
				client, err := lockcore.New(redis.Client(), lockcore.Config{Registerer: reg})
				must(t, err)
				defer func() { must(t, client.Close(context.WithoutCancel(t.Context()))) }()
				c.use(t, client)
				want := slices.Sorted(slices.Values(slices.Concat(ofClient, c.want)))
				if got := series(t, reg); !slices.Equal(got, want) {
					t.Errorf("%d series, want %d:\n%s\nwant\n%s", len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		})
	}
}

// series returns the names of all series, with the values of their labels.
func series(t *testing.T, reg *prometheus.Registry) (all []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
