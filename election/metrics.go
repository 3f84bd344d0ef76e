package election

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

// leaseLabel is the kind of an election's lease in lockcore's metrics.
const leaseLabel = "election"

type metrics struct {
	status                 prometheus.Gauge // leaders of this process
	gained, released, lost prometheus.Counter
	timeToLead             prometheus.Observer
	overruns               prometheus.Counter
	resigns, transfers     prometheus.Counter // requests of operators
}

// newMetrics returns the metrics, which it registers unless another elector has registered them before.
func newMetrics(set *registry.Set, name string) (*metrics, error) {
	// Dashboards and alerts use this name of client-go. controller-runtime's registry already
	// contains a metric of this name. The help text and the label are the same as there, so
	// that elections can share the metric.
	shared := &registry.Set{Registerer: set.Registerer}
	status := shared.Gauges("leader_election_master_status",
		"Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", "name")
	leads, err := status.WithLabelValues, shared.Err()
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if theirs, ok := there.ExistingCollector.(*prometheus.GaugeVec); ok { // controller-runtime's
			leads, err = theirs.WithLabelValues, nil
		}
	}
	transitions := set.Counters("noonlock_election_transitions_total",
		"Terms of this process that began (gained), ended voluntarily (released), or ended involuntarily (lost).", "name", "event")
	timeToLead := set.Histograms("noonlock_election_time_to_lead_seconds",
		"Time from the start of a campaign to leadership.",
		[]float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 30, 60, 600, 3600, 86400}, "name")
	overruns := set.Counters("noonlock_election_drain_overruns_total",
		"Terms whose work did not stop within DrainTimeout, so that two replicas may have led.", "name")
	acts := set.Counters("noonlock_election_interventions_total",
		"Requests of operators that this replica carried out: resign, transfer.", "name", "action")
	if err = errors.Join(err, set.Err()); err != nil {
		return nil, err
	}
	return &metrics{
		status: leads(name),
		gained: transitions.WithLabelValues(name, "gained"), released: transitions.WithLabelValues(name, "released"),
		lost:       transitions.WithLabelValues(name, "lost"),
		timeToLead: timeToLead.WithLabelValues(name), overruns: overruns.WithLabelValues(name),
		resigns: acts.WithLabelValues(name, "resign"), transfers: acts.WithLabelValues(name, "transfer"),
	}, nil
}
