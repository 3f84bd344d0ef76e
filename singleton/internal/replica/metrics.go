package replica

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/plan"
)

// metrics are the collectors of a Replica. The label name is the name of a job. outcome, reason and action
// are constants, so the number of series is bounded by the code.
type metrics struct {
	runs        *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	delay       *prometheus.HistogramVec
	lastSuccess *prometheus.GaugeVec
	next        *prometheus.GaugeVec
	paused      *prometheus.GaugeVec
	superseded  *prometheus.GaugeVec
	skips       *prometheus.CounterVec
	takeovers   *prometheus.CounterVec
	losses      *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
	changes     *prometheus.CounterVec
	actions     *prometheus.CounterVec
	offset      prometheus.Gauge

	onlySums bool // whether counters and histograms are sums over all jobs
}

// newMetrics makes the collectors and registers them. Several Runners share the collectors of one Registerer.
func newMetrics(set *registry.Set) (*metrics, error) {
	m := &metrics{
		onlySums: set.Sum,
		runs: set.Counters("noonlock_job_runs_total",
			"Runs whose outcome this replica recorded: succeeded, failed, unknown.", "name", "outcome"),
		duration: set.Histograms("noonlock_job_attempt_duration_seconds",
			"Duration of the attempts on this replica.",
			prometheus.ExponentialBuckets(0.005, 4, 10), "name"), // to 22 minutes
		delay: set.Histograms("noonlock_job_start_delay_seconds",
			"Delay from a tick to its first attempt on this replica, by the server's clock.",
			[]float64{.005, .025, .1, .5, 5, 30, 300, 3600}, "name"),
		lastSuccess: set.Times("noonlock_job_last_success_timestamp_seconds",
			"The newest tick that succeeded on any replica, as far as this replica knows.", "name"),
		next: set.Times("noonlock_job_next_tick_timestamp_seconds",
			"When the next tick is due on any replica, as this replica last planned it.", "name"),
		paused: set.Gauges("noonlock_job_paused",
			"1 while the job is paused, as far as this replica knows, otherwise 0.", "name"),
		superseded: set.Gauges("noonlock_job_superseded",
			"1 while another definition of the job is in use and this replica runs none of its ticks, otherwise 0.", "name"),
		skips: set.Counters("noonlock_job_skipped_ticks_total",
			"Ticks that this replica recorded as skipped, by reason: missed, overlap, deadline, paused.", "name", "reason"),
		takeovers: set.Counters("noonlock_job_takeovers_total",
			"Runs that this replica took over from a replica that died.", "name"),
		losses: set.Counters("noonlock_job_ledger_losses_total",
			"How often this replica found that a ledger had lost data since its last check.", "name"),
		conflicts: set.Counters("noonlock_job_definition_conflicts_total",
			"How often this replica found that replicas with another definition of the job had run at the same time for ten minutes.", "name"),
		changes: set.Counters("noonlock_job_schedule_changes_total",
			"Changes of the schedule that this replica noticed. No tick that was due before runs any more.", "name"),
		actions: set.Counters("noonlock_job_interventions_total",
			"Requests of operators that this replica carried out: trigger, rerun, cancel, pause, resume. Every replica carries out a pause and its end.", "name", "action"),
		offset: set.Gauges("noonlock_job_clock_offset_seconds",
			"How far the wall clock of this machine is ahead of the server's.").WithLabelValues(),
	}
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("singleton: the Registerer of the Client: %w", err)
	}
	return m, nil
}

// words returns the values of the second label of each counter, or nil if it has one label.
func (m *metrics) words() map[*prometheus.CounterVec][]string {
	return map[*prometheus.CounterVec][]string{
		m.takeovers: nil, m.losses: nil, m.conflicts: nil, m.changes: nil,
		m.runs:    {ledger.OutcomeSucceeded, ledger.OutcomeFailed, ledger.OutcomeUnknown},
		m.skips:   {plan.SkipMissed, plan.SkipOverlap, plan.SkipDeadline, plan.SkipPaused},
		m.actions: {ledger.RequestTrigger, ledger.RequestRerun, ledger.ActionCancel, ledger.ActionPause, ledger.ActionResume},
	}
}

type jobMetrics struct {
	*metrics
	name string
	// sum is the value of the label name of counters and histograms. With onlySums it is empty, so that a sum does not
	// decrease when a job is removed.
	sum string
}

// job returns the series of a job. It creates the counters, so that they exist before the first event.
func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{m, name, name}
	if m.onlySums {
		j.sum = ""
	}
	m.duration.WithLabelValues(j.sum)
	m.delay.WithLabelValues(j.sum)
	for counter, words := range m.words() {
		if words == nil {
			counter.WithLabelValues(j.sum)
		}
		for _, word := range words {
			counter.WithLabelValues(j.sum, word)
		}
	}
	j.show(&ledger.State{})
	return j
}

// forget deletes the series of a job that was removed.
func (j *jobMetrics) forget() {
	for _, gauge := range []*prometheus.GaugeVec{j.lastSuccess, j.next, j.paused, j.superseded} {
		gauge.DeleteLabelValues(j.name)
	}
	if j.onlySums {
		return
	}
	j.duration.DeleteLabelValues(j.name)
	j.delay.DeleteLabelValues(j.name)
	for counter, words := range j.words() {
		counter.DeleteLabelValues(j.name)
		for _, word := range words {
			counter.DeleteLabelValues(j.name, word)
		}
	}
}

func (j *jobMetrics) count(counter *prometheus.CounterVec, word ...string) {
	counter.WithLabelValues(append([]string{j.sum}, word...)...).Inc()
}

// show sets the gauges to the state of the ledger.
func (j *jobMetrics) show(state *ledger.State) {
	j.paused.WithLabelValues(j.name).Set(oneIf(state.Paused))
	j.superseded.WithLabelValues(j.name).Set(oneIf(state.Superseded))
	j.showTime(j.lastSuccess, state.LastSuccess)
}

// showTime sets a gauge to a time. The gauge has no series until the time is known.
func (j *jobMetrics) showTime(gauge *prometheus.GaugeVec, at time.Time) {
	if !at.IsZero() {
		gauge.WithLabelValues(j.name).Set(float64(at.UnixMilli()) / 1000)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
