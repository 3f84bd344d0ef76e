package members

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/registry"
)

// Metrics are the series of each server.
type Metrics []serverMetrics

type serverMetrics struct {
	requests *prometheus.CounterVec // by outcome
	up       prometheus.Gauge
}

func (m *serverMetrics) count(outcome string) { m.requests.WithLabelValues(outcome).Inc() }

// NewMetrics returns the series of the servers. Each has the address of its server as a label, so there are at most nine values
// for each list of servers.
func NewMetrics(reg prometheus.Registerer, servers []redis.Options) (Metrics, error) {
	set := &registry.Set{Registerer: reg}
	requests := set.Counters("noonlock_quorum_requests_total",
		"Requests to a server of a quorum, by outcome: answered, lost_data, waiting, other_list, ttl_too_long (it answered that it grants nothing, with the reason), failed (refused, or no answer), skipped (not sent, because it did not answer lately).", "server", "outcome")
	up := set.Gauges("noonlock_quorum_server_up", "Whether a server of a quorum answers: 0 from a request without an answer to the next answer.", "server")
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("lockcore: Config.Registerer: %w", err)
	}
	all := make(Metrics, len(servers))
	for i, s := range servers {
		all[i] = serverMetrics{requests.MustCurryWith(prometheus.Labels{"server": s.Addr}), up.WithLabelValues(s.Addr)}
		all[i].up.Set(1)
		for _, outcome := range []string{"answered", "failed", "skipped", "lost_data", "waiting", "other_list", "ttl_too_long"} {
			all[i].requests.WithLabelValues(outcome)
		}
	}
	return all, nil
}
