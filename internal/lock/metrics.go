package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/wire"
)

// metrics are the collectors of a Client. No label has the name of a lock, because
// programs may create names without limit, and each would create new series.
type metrics struct {
	acquires     *prometheus.CounterVec
	wait         *prometheus.HistogramVec
	handover     prometheus.Observer
	held         *prometheus.GaugeVec
	waiting      *prometheus.GaugeVec
	renewals     *prometheus.CounterVec
	lateness     prometheus.Observer
	losses       *prometheus.CounterVec
	lapsed       prometheus.Counter
	scriptErrors *prometheus.CounterVec
	forced       prometheus.Counter
	delays       prometheus.Counter

	kinds sync.Map // label to *kindMetrics

	renewed, failed, lost, unreplicated prometheus.Counter // outcomes of renewals
}

// kindMetrics are the series of one kind of lease. With them, a lease does not look up its series by label.
type kindMetrics struct {
	held  prometheus.Gauge
	queue func() *queueMetrics // created at the first call, as not every kind queues
}

// queueMetrics are the further series of a kind whose attempts queue.
type queueMetrics struct {
	acquired prometheus.Counter
	wait     prometheus.Observer
	waiting  prometheus.Gauge
}

// newMetrics creates the collectors and registers them. Collectors that another Client has registered are shared.
func newMetrics(set *registry.Set) (*metrics, error) {
	m := &metrics{
		acquires: set.Counters("noonlock_acquires_total",
			"Attempts to acquire a lock, by kind and outcome.", "kind", "outcome"),
		wait: set.Histograms("noonlock_acquire_wait_seconds",
			"Time from the call to the lease, for attempts that acquired the lock.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600}, "kind"),
		handover: set.Histograms("noonlock_handover_seconds",
			"Time from a grant message for a waiter of this process to its lease.",
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}).WithLabelValues(),
		held: set.Gauges("noonlock_leases_held",
			"Leases that this process holds.", "kind"),
		waiting: set.Gauges("noonlock_waiters",
			"Calls of this process that wait for a lock. The sum over all processes is the total length of all queues.", "kind"),
		renewals: set.Counters("noonlock_renewals_total",
			"Renewals, by outcome: renewed, lost (according to the server), not_replicated (see Config.MinReplicas), failed (an error, or no answer).", "outcome"),
		lateness: set.Histograms("noonlock_renewal_lateness_seconds",
			"Delay of renewals after their due time. It grows on an overloaded machine, and while a server answers slowly, before leases are lost.",
			[]float64{.0005, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10}).WithLabelValues(),
		losses: set.Counters("noonlock_lease_losses_total",
			"Leases that ended before their release, by cause: lost (according to the server), forced (by ForceRelease), expired (no renewal was answered in time), not_replicated (no renewal was acknowledged in time).", "cause"),
		lapsed: set.Counters("noonlock_lapsed_grants_total",
			"Grants to waiters of this process that were not used: the wait had ended, or the grant was not confirmed in time.").WithLabelValues(),
		scriptErrors: set.Counters("noonlock_script_errors_total",
			"Script calls that failed, by script and reason: refused (by the server), not_replicated, unanswered, unsent.", "script", "reason"),
		forced: set.Counters("noonlock_forced_releases_total",
			"Locks that this process released by ForceRelease.").WithLabelValues(),
		delays: set.Counters("noonlock_lock_delays_total",
			"How often this process found that a server may have lost data, and delayed its grants (see Config.LockDelay).").WithLabelValues(),
	}
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("lockcore: Config.Registerer: %w", err)
	}
	// These series exist before the first event.
	m.renewed, m.failed, m.lost, m.unreplicated = m.renewals.WithLabelValues("renewed"), m.renewals.WithLabelValues("failed"), m.renewals.WithLabelValues("lost"), m.renewals.WithLabelValues("not_replicated")
	for _, cause := range []string{"lost", "forced", "expired", "not_replicated"} {
		m.losses.WithLabelValues(cause)
	}
	return m, nil
}

// kind returns the series of a kind and creates them at the first call: an application uses few kinds, and
// series of unused kinds would be noise.
func (m *metrics) kind(name string) *kindMetrics {
	if k, ok := m.kinds.Load(name); ok {
		return k.(*kindMetrics)
	}
	k, _ := m.kinds.LoadOrStore(name, &kindMetrics{
		held: m.held.WithLabelValues(name),
		queue: sync.OnceValue(func() *queueMetrics {
			return &queueMetrics{m.acquires.WithLabelValues(name, "acquired"), m.wait.WithLabelValues(name), m.waiting.WithLabelValues(name)}
		}),
	})
	return k.(*kindMetrics)
}

func (m *metrics) countAcquire(kind string, took time.Duration, held *Held, err error) {
	if err == nil {
		q := m.kind(kind).queue()
		q.acquired.Inc()
		q.wait.Observe(took.Seconds())
		return
	}
	m.acquires.WithLabelValues(kind, outcomeOf(held, err)).Inc()
}

func outcomeOf(held *Held, err error) string {
	switch {
	case held != nil:
		return "busy"
	case errors.Is(err, ErrUpgrade):
		return "upgrade"
	case errors.Is(err, ErrWrongKind):
		return "wrong_kind"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrClosed):
		return "ended"
	case DelayOf(err) != nil:
		return "delayed"
	case errors.Is(err, ErrUnknown):
		return "unknown"
	case errors.Is(err, ErrNotReplicated):
		return "not_replicated"
	}
	return "error"
}

func (m *metrics) countLoss(cause error) {
	_, forced := errors.AsType[*ForcedError](cause)
	label := "lost"
	switch {
	case forced:
		label = "forced"
	case errors.Is(cause, ErrNotReplicated):
		label = "not_replicated"
	case errors.Is(cause, ErrLeaseExpired):
		label = "expired"
	}
	m.losses.WithLabelValues(label).Inc()
}

func (m *metrics) countFailure(req wire.Request, err error) {
	if !req.IsScript() {
		return
	}
	reason := "refused"
	switch wire.OutcomeOf(err) {
	case wire.Unreplicated:
		reason = "not_replicated"
	case wire.Unknown:
		reason = "unanswered"
	case wire.Unsent:
		reason = "unsent"
	default:
	}
	m.scriptErrors.WithLabelValues(req.Name(), reason).Inc()
}
