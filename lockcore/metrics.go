package lockcore

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

// metrics are what a Client tells Prometheus. No label carries the name of a lock:
// names may be made up at run time, and each would be series of its own.
type metrics struct {
	acquires     *registry.Vec[prometheus.Counter]
	wait         *registry.Vec[prometheus.Histogram]
	handover     prometheus.Histogram
	held         *registry.Vec[prometheus.Gauge]
	waiting      *registry.Vec[prometheus.Gauge]
	renewals     *registry.Vec[prometheus.Counter]
	lateness     prometheus.Histogram
	losses       *registry.Vec[prometheus.Counter]
	lapsed       prometheus.Counter
	scriptErrors *registry.Vec[prometheus.Counter]
	forced       prometheus.Counter

	kinds map[string]*kindMetrics

	renewed, missed, lost           prometheus.Counter // of renewals
	lostLeases, expired, maxReached prometheus.Counter // of losses
}

// kindMetrics are the series of one kind of lease. They are there from when the first
// lock of the kind is made, see metrics.kind.
type kindMetrics struct {
	made          sync.Once
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
		acquires: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_acquires_total",
			Help: "Attempts at a lock, by kind and by what became of them.",
		}, "kind", "outcome"),
		wait: registry.Histograms(prometheus.HistogramOpts{
			Name:    "noonlock_acquire_wait_seconds",
			Help:    "From the call to the lease, of attempts that acquired.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, "kind"),
		handover: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "noonlock_handover_seconds",
			Help:    "From hearing that a lock was granted to a waiter of this process to its lease.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		held: registry.Gauges(prometheus.GaugeOpts{
			Name: "noonlock_leases_held",
			Help: "Leases that this process holds now.",
		}, "kind"),
		waiting: registry.Gauges(prometheus.GaugeOpts{
			Name: "noonlock_waiters",
			Help: "Calls of this process that wait for a lock now; the sum over all processes is the length of all lines.",
		}, "kind"),
		renewals: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_renewals_total",
			Help: "Renewals of leases by outcome: renewed, lost (the server says that it is not ours), failed (no answer, or an error).",
		}, "outcome"),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "noonlock_renewal_lateness_seconds",
			Help:    "How much later than due renewals were sent: a machine that is short of time shows here before it loses leases.",
			Buckets: []float64{.0005, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		losses: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_lease_losses_total",
			Help: "Leases that ended before their release, by cause: lost (the server says so), expired (no renewal was answered in time), max_hold.",
		}, "cause"),
		lapsed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "noonlock_lapsed_grants_total",
			Help: "Grants to waiters of this process that were not taken up: given up, or not confirmed in time.",
		}),
		scriptErrors: registry.Counters(prometheus.CounterOpts{
			Name: "noonlock_script_errors_total",
			Help: "Calls of scripts that failed, by script and reason: refused (by the server), unanswered, unsent.",
		}, "script", "reason"),
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

// expect makes the series that are there before anything happens.
func (m *metrics) expect() {
	m.kinds = map[string]*kindMetrics{}
	for _, kind := range []string{kindMutex, kindReentrant, kindRead, kindWrite, kindElection, kindRun} {
		m.kinds[kind] = &kindMetrics{}
	}
	m.renewed, m.missed, m.lost = m.renewals.With("renewed"), m.renewals.With("failed"), m.renewals.With("lost")
	m.lostLeases, m.expired, m.maxReached = m.losses.With("lost"), m.losses.With("expired"), m.losses.With("max_hold")
}

// kind is the series of a kind, from now on there. An application uses few of them.
func (m *metrics) kind(name string) *kindMetrics {
	k := m.kinds[name]
	k.made.Do(func() {
		k.held = m.held.With(name)
		if name != kindRun { // claims are the ledger's, and wait in no line
			k.acquired, k.wait, k.waiting = m.acquires.With(name, outcomeAcquired), m.wait.With(name), m.waiting.With(name)
		}
	})
	return k
}

// asked counts what became of an attempt at a lock.
func (m *metrics) asked(kind string, took time.Duration, err error) {
	if err == nil {
		m.kind(kind).acquired.Inc()
		m.kind(kind).wait.Observe(took.Seconds())
		return
	}
	m.acquires.With(kind, outcomeOf(err)).Inc()
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

// ended counts a lease that ended against its holder's will.
func (m *metrics) ended(cause error) {
	switch {
	case errors.Is(cause, ErrMaxHold):
		m.maxReached.Inc()
	case errors.Is(cause, ErrLeaseExpired):
		m.expired.Inc()
	default:
		m.lostLeases.Inc()
	}
}

// failed counts a call that had no good answer.
func (m *metrics) failed(req wire.Request, err error) {
	if !req.IsScript() {
		return
	}
	reason := "refused"
	switch wire.OutcomeOf(err) {
	case wire.Unknown:
		reason = "unanswered"
	case wire.Unsent:
		reason = "unsent"
	default:
	}
	m.scriptErrors.With(req.Name(), reason).Inc()
}
