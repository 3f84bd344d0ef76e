package singleton

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

// metrics are what a Runner tells Prometheus. The label job is a name that the
// program has given to Add before Run, and outcome and reason are the words of
// this package, so the number of series is fixed by the code.
type metrics struct {
	runs        *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	delay       *prometheus.HistogramVec
	lastSuccess *prometheus.GaugeVec
	skipped     *prometheus.CounterVec
	takeovers   *prometheus.CounterVec
	raised      *prometheus.CounterVec
	offset      prometheus.Gauge
}

// newMetrics makes the collectors and registers them; those that another Runner
// has registered are shared. A nil Registerer is none.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_job_runs_total",
			Help: "Runs whose outcome this replica has recorded: succeeded, failed, unknown, lost.",
		}, []string{"job", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "noonlock_job_attempt_duration_seconds",
			Help:    "How long the attempts of runs on this replica took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 10), // to 22 minutes
		}, []string{"job"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "noonlock_job_start_delay_seconds",
			Help:    "How long after it came due, its jitter over, the first attempt at a tick was begun on this replica, by the server's clock.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 300, 3600},
		}, []string{"job"}),
		lastSuccess: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "noonlock_job_last_success_timestamp_seconds",
			Help: "The newest tick that has succeeded on any replica, as far as this one knows.",
		}, []string{"job"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_job_skipped_ticks_total",
			Help: "Ticks that this replica has recorded as skipped, by reason: missed, overlap, deadline, paused, rescheduled.",
		}, []string{"job", "reason"}),
		takeovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_job_takeovers_total",
			Help: "Runs that this replica has taken over from another that died or gave up.",
		}, []string{"job"}),
		raised: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_job_tokens_raised_total",
			Help: "Runs whose token was raised, as their resource had seen a greater one: the server's clock was ahead, or its data was lost.",
		}, []string{"job"}),
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
		registry.Share(reg, &m.skipped), registry.Share(reg, &m.takeovers), registry.Share(reg, &m.raised), registry.Share(reg, &m.offset),
	)
	if err != nil {
		return nil, fmt.Errorf("singleton: Config.Registerer: %w", err)
	}
	return m, nil
}

// expect makes the series of a job, so that they are there before anything
// happens.
func (m *metrics) expect(job string) {
	for _, outcome := range []string{"succeeded", "failed", "unknown", "lost"} {
		m.runs.WithLabelValues(job, outcome)
	}
	for _, reason := range []string{skipMissed, skipOverlap, skipDeadline, skipPaused, skipRescheduled} {
		m.skipped.WithLabelValues(job, reason)
	}
	m.takeovers.WithLabelValues(job)
	m.raised.WithLabelValues(job)
	m.duration.WithLabelValues(job)
	m.delay.WithLabelValues(job)
}

// succeeded notes the newest successful tick of a job.
func (m *metrics) succeeded(job string, tick time.Time) {
	if !tick.IsZero() {
		m.lastSuccess.WithLabelValues(job).Set(float64(tick.UnixMilli()) / 1000)
	}
}
