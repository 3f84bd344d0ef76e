package singleton

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// metrics are what a Runner tells Prometheus. The label job is a name that the
// program has given to Add before Run, and outcome and reason are the words of
// this package, so the number of series is fixed by the code.
type metrics struct {
	runs        *registry.Vec[prometheus.Counter]
	duration    *registry.Vec[prometheus.Histogram]
	delay       *registry.Vec[prometheus.Histogram]
	lastSuccess *instantsGauge
	next        *instantsGauge
	paused      *registry.Vec[prometheus.Gauge]
	superseded  *registry.Vec[prometheus.Gauge]
	skipped     *registry.Vec[prometheus.Counter]
	takeovers   *registry.Vec[prometheus.Counter]
	raised      *registry.Vec[prometheus.Counter]
	losses      *registry.Vec[prometheus.Counter]
	conflicts   *registry.Vec[prometheus.Counter]
	offset      prometheus.Gauge
}

// newMetrics makes the collectors and registers them; those that another Runner
// has registered are shared. A nil Registerer is none.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		runs: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_runs_total",
			Help: "Runs whose outcome this replica has recorded: succeeded, failed, unknown, lost.",
		}, "name", "outcome"),
		duration: registry.Histograms(prometheus.HistogramOpts{
			Name:    "noonlock_job_attempt_duration_seconds",
			Help:    "How long the attempts of runs on this replica took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 10), // to 22 minutes
		}, "name"),
		delay: registry.Histograms(prometheus.HistogramOpts{
			Name:    "noonlock_job_start_delay_seconds",
			Help:    "How long after it came due, its jitter over, the first attempt at a tick was begun on this replica, by the server's clock.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600},
		}, "name"),
		lastSuccess: newInstantsGauge("noonlock_job_last_success_timestamp_seconds",
			"The newest tick that has succeeded on any replica, as far as this one knows."),
		next: newInstantsGauge("noonlock_job_next_tick_timestamp_seconds",
			"When the next tick comes due on any replica, its jitter included, as this one has planned last."),
		paused: registry.Gauges(prometheus.GaugeOpts{
			Name: "noonlock_job_paused",
			Help: "1 while the job is paused, as far as this replica knows, else 0.",
		}, "name"),
		superseded: registry.Gauges(prometheus.GaugeOpts{
			Name: "noonlock_job_superseded",
			Help: "1 while another definition of the job is in use, so that this replica runs none of its ticks, else 0.",
		}, "name"),
		skipped: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_skipped_ticks_total",
			Help: "Ticks that this replica has recorded as skipped, by reason: missed, overlap, deadline, paused, rescheduled.",
		}, "name", "reason"),
		takeovers: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_takeovers_total",
			Help: "Runs that this replica has taken over from another that died or gave up.",
		}, "name"),
		raised: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_tokens_raised_total",
			Help: "Runs whose token was raised, as their resource had seen a greater one: the server's clock was ahead, or its data was lost.",
		}, "name"),
		losses: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_ledger_losses_total",
			Help: "How often this replica has found that the ledger it knew was lost or set back.",
		}, "name"),
		conflicts: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_job_definition_conflicts_total",
			Help: "How often this replica has found replicas with another definition of the job beside it for ten minutes.",
		}, "name"),
		offset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "noonlock_job_clock_offset_seconds",
			Help: "How far this machine's wall clock is ahead of the server's.",
		}),
	}
	if reg == nil {
		return m, nil
	}
	err := errors.Join(
		registry.Share(reg, &m.runs), registry.Share(reg, &m.duration), registry.Share(reg, &m.delay), registry.Share(reg, &m.lastSuccess),
		registry.Share(reg, &m.next), registry.Share(reg, &m.paused), registry.Share(reg, &m.superseded), registry.Share(reg, &m.skipped),
		registry.Share(reg, &m.takeovers), registry.Share(reg, &m.raised), registry.Share(reg, &m.losses), registry.Share(reg, &m.conflicts), registry.Share(reg, &m.offset),
	)
	if err != nil {
		return nil, fmt.Errorf("singleton: Config.Registerer: %w", err)
	}
	return m, nil
}

// jobMetrics are the series of one job. They are made before it runs, so that they are there before anything happens.
type jobMetrics struct {
	name               string
	runs, skips        map[string]prometheus.Counter
	duration, delay    prometheus.Observer
	takeovers, raised  prometheus.Counter
	losses, conflicts  prometheus.Counter
	paused, superseded prometheus.Gauge
	lastSuccess, ticks *instantsGauge
}

func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{
		name: name, runs: map[string]prometheus.Counter{}, skips: map[string]prometheus.Counter{},
		duration: m.duration.With(name), delay: m.delay.With(name),
		takeovers: m.takeovers.With(name), raised: m.raised.With(name),
		losses: m.losses.With(name), conflicts: m.conflicts.With(name),
		paused: m.paused.With(name), superseded: m.superseded.With(name),
		lastSuccess: m.lastSuccess, ticks: m.next,
	}
	for _, outcome := range []string{OutcomeSucceeded, OutcomeFailed, OutcomeUnknown, OutcomeLost} {
		j.runs[outcome] = m.runs.With(name, outcome)
	}
	for _, reason := range []string{skipMissed, skipOverlap, skipDeadline, skipPaused, skipRescheduled} {
		j.skips[reason] = m.skipped.With(name, reason)
	}
	return j
}

// ended counts a run. An outcome that is not known is a newer version's.
func (j *jobMetrics) ended(outcome string) {
	if c := j.runs[outcome]; c != nil {
		c.Inc()
	}
}

// skipped counts ticks that were recorded as skipped.
func (j *jobMetrics) skipped(s *ledger.Skip) {
	if s != nil && j.skips[s.Reason] != nil {
		j.skips[s.Reason].Add(float64(s.Count))
	}
}

// stands notes how the job stands in the ledger.
func (j *jobMetrics) stands(state *ledger.State) {
	j.paused.Set(oneIf(state.Paused))
	j.superseded.Set(oneIf(state.Superseded))
	j.succeeded(state.LastSuccess)
}

// succeeded notes the newest successful tick.
func (j *jobMetrics) succeeded(tick time.Time) { j.lastSuccess.set(j.name, tick) }

// due notes when the next tick comes due.
func (j *jobMetrics) due(at time.Time) { j.ticks.set(j.name, at) }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
