package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

// metrics are what a Client tells Prometheus. No label carries the name of a lock:
// names may be made up at run time, and each would be series of its own.
type metrics struct {
	acquires     *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	handover     prometheus.Histogram
	held         *prometheus.GaugeVec
	waiting      *prometheus.GaugeVec
	renewals     *prometheus.CounterVec
	lateness     prometheus.Histogram
	losses       *prometheus.CounterVec
	lapsed       prometheus.Counter
	scriptErrors *prometheus.CounterVec
	forced       prometheus.Counter

	kinds map[string]*kindMetrics
}

// kindMetrics are the series of one kind of lease.
type kindMetrics struct {
	acquired      prometheus.Counter
	wait          prometheus.Observer
	held, waiting prometheus.Gauge
}

// The kinds of leases, as labels.
const (
	kindMutex     = "mutex"
	kindReentrant = "reentrant"
	kindRead      = "read"
	kindWrite     = "write"
	kindElection  = "election"
	kindRun       = "run"
)

// What became of an attempt at a lock, as labels.
const (
	outcomeAcquired  = "acquired"
	outcomeBusy      = "busy"
	outcomeEnded     = "ended"
	outcomeWrongKind = "wrong_kind"
	outcomeUpgrade   = "upgrade"
	outcomeUnknown   = "unknown"
	outcomeError     = "error"
)

// newMetrics makes the collectors and registers them; those that another Client has
// registered are shared. A nil Registerer is none.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		acquires: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_acquires_total",
			Help: "Attempts at a lock, by kind and by what became of them.",
		}, []string{"kind", "outcome"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "noonlock_acquire_wait_seconds",
			Help:    "From the call to the lease, of attempts that acquired.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, []string{"kind"}),
		handover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "noonlock_handover_seconds",
			Help:    "From hearing that a lock was granted to a waiter of this process to its lease.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		held: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "noonlock_leases_held",
			Help: "Leases that this process holds now.",
		}, []string{"kind"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "noonlock_waiters",
			Help: "Calls of this process that wait for a lock now; the sum over all processes is the length of all lines.",
		}, []string{"kind"}),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_renewals_total",
			Help: "Renewals of leases by outcome: renewed, lost (the server says that it is not ours), failed (no answer, or an error).",
		}, []string{"outcome"}),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "noonlock_renewal_lateness_seconds",
			Help:    "How much later than due renewals were sent: a machine that is short of time shows here before it loses leases.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		losses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_lease_losses_total",
			Help: "Leases that ended before their release, by cause: lost (the server says so), expired (no renewal was answered in time), max_hold.",
		}, []string{"cause"}),
		lapsed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "noonlock_lapsed_grants_total",
			Help: "Grants to waiters of this process that were not taken up: given up, or not confirmed in time.",
		}),
		scriptErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "noonlock_script_errors_total",
			Help: "Calls of scripts that failed, by script and reason: refused (by the server), unanswered, unsent.",
		}, []string{"script", "reason"}),
		forced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "noonlock_forced_releases_total",
			Help: "Locks that this process has taken from their holder by ForceRelease.",
		}),
	}
	if reg != nil {
		err := errors.Join(
			registry.Share(reg, &m.acquires), registry.Share(reg, &m.wait), registry.Share(reg, &m.handover), registry.Share(reg, &m.held), registry.Share(reg, &m.waiting),
			registry.Share(reg, &m.renewals), registry.Share(reg, &m.lateness), registry.Share(reg, &m.losses), registry.Share(reg, &m.lapsed),
			registry.Share(reg, &m.scriptErrors), registry.Share(reg, &m.forced),
		)
		if err != nil {
			return nil, fmt.Errorf("lockcore: Config.Registerer: %w", err)
		}
	}
	m.expect()
	return m, nil
}

// expect makes the series, so that they are there before anything happens.
func (m *metrics) expect() {
	m.kinds = map[string]*kindMetrics{}
	for _, kind := range []string{kindMutex, kindReentrant, kindRead, kindWrite, kindElection, kindRun} {
		k := &kindMetrics{held: m.held.WithLabelValues(kind)}
		if kind != kindRun { // claims are the ledger's, and wait in no line
			k.acquired, k.wait, k.waiting = m.acquires.WithLabelValues(kind, outcomeAcquired), m.wait.WithLabelValues(kind), m.waiting.WithLabelValues(kind)
		}
		m.kinds[kind] = k
	}
	for _, outcome := range []string{"renewed", "lost", "failed"} {
		m.renewals.WithLabelValues(outcome)
	}
	for _, cause := range []string{"lost", "expired", "max_hold"} {
		m.losses.WithLabelValues(cause)
	}
}

// asked counts what became of an attempt at a lock.
func (m *metrics) asked(kind string, took time.Duration, err error) {
	if err == nil {
		m.kinds[kind].acquired.Inc()
		m.kinds[kind].wait.Observe(took.Seconds())
		return
	}
	m.acquires.WithLabelValues(kind, outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	var held *HeldError
	switch {
	case errors.As(err, &held):
		return outcomeBusy
	case errors.Is(err, ErrUpgrade):
		return outcomeUpgrade
	case errors.Is(err, ErrWrongKind):
		return outcomeWrongKind
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
		return outcomeEnded
	case errors.Is(err, ErrUnknown):
		return outcomeUnknown
	}
	return outcomeError
}

// lost counts a lease that ended against its holder's will.
func (m *metrics) lost(cause error) {
	switch {
	case errors.Is(cause, errMaxHold):
		m.losses.WithLabelValues("max_hold").Inc()
	case errors.Is(cause, ErrLeaseExpired):
		m.losses.WithLabelValues("expired").Inc()
	default:
		m.losses.WithLabelValues("lost").Inc()
	}
}

// failed counts a call that had no good answer.
func (m *metrics) failed(s *script, err error) {
	if s == nil {
		return
	}
	reason := "unanswered"
	switch {
	case isUnsent(err):
		reason = "unsent"
	case isServerError(err):
		reason = "refused"
	}
	m.scriptErrors.WithLabelValues(s.name, reason).Inc()
}
