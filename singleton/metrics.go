package singleton

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// metrics are the collectors of a Runner. The label name is the name of a job, and outcome
// and reason are words of this package, so the number of series is bounded by the code.
type metrics struct {
	runs        *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	delay       *prometheus.HistogramVec
	lastSuccess *instantsGauge
	next        *instantsGauge
	paused      *prometheus.GaugeVec
	superseded  *prometheus.GaugeVec
	skipped     *prometheus.CounterVec
	takeovers   *prometheus.CounterVec
	losses      *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
	acts        *prometheus.CounterVec
	offset      prometheus.Gauge
}

// newMetrics makes the collectors and registers them. Collectors that another Runner has
// registered are shared. A nil Registerer registers none.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	set := &registry.Set{Registerer: reg}
	m := &metrics{
		runs: set.Counters("noonlock_job_runs_total",
			"Runs whose outcome this replica recorded: succeeded, failed, unknown.", "name", "outcome"),
		duration: set.Histograms("noonlock_job_attempt_duration_seconds",
			"Duration of the attempts on this replica.",
			prometheus.ExponentialBuckets(0.005, 4, 10), "name"), // to 22 minutes
		delay: set.Histograms("noonlock_job_start_delay_seconds",
			"Delay from the due time of a tick, including its jitter, to its first attempt on this replica, by the server's clock.",
			[]float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600}, "name"),
		lastSuccess: newInstantsGauge(set, "noonlock_job_last_success_timestamp_seconds",
			"The newest tick that succeeded on any replica, as far as this replica knows."),
		next: newInstantsGauge(set, "noonlock_job_next_tick_timestamp_seconds",
			"When the next tick is due on any replica, including its jitter, as this replica last planned it."),
		paused: set.Gauges("noonlock_job_paused",
			"1 while the job is paused, as far as this replica knows, otherwise 0.", "name"),
		superseded: set.Gauges("noonlock_job_superseded",
			"1 while another definition of the job is in use and this replica runs none of its ticks, otherwise 0.", "name"),
		skipped: set.Counters("noonlock_job_skipped_ticks_total",
			"Ticks that this replica recorded as skipped, by reason: missed, overlap, deadline, paused.", "name", "reason"),
		takeovers: set.Counters("noonlock_job_takeovers_total",
			"Runs that this replica took over from a replica that died or abandoned them.", "name"),
		losses: set.Counters("noonlock_job_ledger_losses_total",
			"How often this replica found that a ledger had lost data since its last check.", "name"),
		conflicts: set.Counters("noonlock_job_definition_conflicts_total",
			"How often this replica found that replicas with another definition of the job had run at the same time for ten minutes.", "name"),
		acts: set.Counters("noonlock_job_interventions_total",
			"Requests of operators that this replica carried out: trigger, rerun, cancel, pause, resume. Every replica carries out a pause and its end.", "name", "action"),
		offset: set.Gauge("noonlock_job_clock_offset_seconds",
			"How far the wall clock of this machine is ahead of the server's."),
	}
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("singleton: Config.Registerer: %w", err)
	}
	return m, nil
}

// jobMetrics are the series of one job. They are created before it runs, so that they exist
// before the first event.
type jobMetrics struct {
	name               string
	runs, skips, acts  map[string]prometheus.Counter
	duration, delay    prometheus.Observer
	takeovers          prometheus.Counter
	losses, conflicts  prometheus.Counter
	paused, superseded prometheus.Gauge
	lastSuccess, ticks *instantsGauge
}

func (m *metrics) job(name string) *jobMetrics {
	j := &jobMetrics{
		name: name, runs: map[string]prometheus.Counter{}, skips: map[string]prometheus.Counter{}, acts: map[string]prometheus.Counter{},
		duration: m.duration.WithLabelValues(name), delay: m.delay.WithLabelValues(name),
		takeovers: m.takeovers.WithLabelValues(name),
		losses:    m.losses.WithLabelValues(name), conflicts: m.conflicts.WithLabelValues(name),
		paused: m.paused.WithLabelValues(name), superseded: m.superseded.WithLabelValues(name),
		lastSuccess: m.lastSuccess, ticks: m.next,
	}
	for _, outcome := range []string{OutcomeSucceeded, OutcomeFailed, OutcomeUnknown} {
		j.runs[outcome] = m.runs.WithLabelValues(name, outcome)
	}
	for _, reason := range []string{skipMissed, skipOverlap, skipDeadline, skipPaused} {
		j.skips[reason] = m.skipped.WithLabelValues(name, reason)
	}
	for _, action := range []string{ledger.RequestTrigger, ledger.RequestRerun, ledger.ActionCancel, ledger.ActionPause, ledger.ActionResume} {
		j.acts[action] = m.acts.WithLabelValues(name, action)
	}
	return j
}

// ended counts a run. An unknown outcome is ignored: a newer version recorded it.
func (j *jobMetrics) ended(outcome string) {
	if c := j.runs[outcome]; c != nil {
		c.Inc()
	}
}

// intervened counts a request of an operator. An unknown action is ignored, as in ended.
func (j *jobMetrics) intervened(action string) {
	if c := j.acts[action]; c != nil {
		c.Inc()
	}
}

// skipped counts ticks that were recorded as skipped.
func (j *jobMetrics) skipped(s *ledger.Skip) {
	if s != nil && j.skips[s.Reason] != nil {
		j.skips[s.Reason].Add(float64(s.Count))
	}
}

// show sets the gauges to the state of the ledger.
func (j *jobMetrics) show(state *ledger.State) {
	j.paused.Set(oneIf(state.Paused))
	j.superseded.Set(oneIf(state.Superseded))
	j.succeeded(state.LastSuccess)
}

// succeeded sets the newest successful tick.
func (j *jobMetrics) succeeded(tick time.Time) { j.lastSuccess.set(j.name, tick) }

// due sets when the next tick is due.
func (j *jobMetrics) due(at time.Time) { j.ticks.set(j.name, at) }

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// An instantsGauge is a gauge of a point in time per job. A job has no series until its
// time is known. Collect releases the mutex before it sends, so a slow reader delays no job.
type instantsGauge struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	at   map[string]time.Time
}

func newInstantsGauge(set *registry.Set, name, help string) *instantsGauge {
	return registry.Add(set, &instantsGauge{desc: prometheus.NewDesc(name, help, []string{"name"}, nil), at: map[string]time.Time{}})
}

func (g *instantsGauge) set(job string, at time.Time) {
	if at.IsZero() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at[job] = at
}

// Describe implements prometheus.Collector.
func (g *instantsGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector.
func (g *instantsGauge) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	found := make([]prometheus.Metric, 0, len(g.at))
	for job, at := range g.at {
		found = append(found, prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(at.UnixMilli())/1000, job))
	}
	g.mu.Unlock()
	for _, metric := range found {
		ch <- metric
	}
}

// daemonMetrics are the series of one Daemon.
type daemonMetrics struct {
	running prometheus.Gauge
	starts  prometheus.Counter
	lost    prometheus.Counter
}

// newDaemonMetrics makes the collectors and registers them. Collectors that another Daemon
// has registered are shared. A nil Registerer registers none.
func newDaemonMetrics(reg prometheus.Registerer, name string) (*daemonMetrics, error) {
	set := &registry.Set{Registerer: reg}
	running := set.Gauges("noonlock_daemon_running",
		"1 while the function of the daemon runs on this replica, otherwise 0. The sum over all replicas is 1.", "name")
	starts := set.Counters("noonlock_daemon_starts_total",
		"How often this replica started the function of the daemon. Several starts in a row mean that the function returns by itself.", "name")
	lost := set.Counters("noonlock_daemon_losses_total",
		"How often the function stopped on this replica because its lease ended.", "name")
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("singleton: DaemonConfig.Registerer: %w", err)
	}
	return &daemonMetrics{running.WithLabelValues(name), starts.WithLabelValues(name), lost.WithLabelValues(name)}, nil
}
