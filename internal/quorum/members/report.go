package members

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/registry"
)

var (
	errOutdated = errors.New("lockcore: a server has a later list, or one with another number of servers: QuorumConfig.List and the servers must be the same everywhere")
	errDiffers  = errors.New("lockcore: other clients have other servers under the same QuorumConfig.List, or a server belongs to another quorum: give all clients the same servers, and increase List by one")
	errReplaced = errors.New("lockcore: at least half of the servers have never been in this quorum, or have lost their data: replace less than half at a time; after a loss of data, follow docs/OPERATIONS.md, \"Servers of a quorum\"")
	errOutside  = errors.New("lockcore: a server is not in the list of the quorum, and this process has never seen a member at its address: correct the servers of this process. If the member has lost its data and no other process lets it in, increase QuorumConfig.List by one everywhere")
	errDouble   = errors.New("lockcore: two of the clients given to NewQuorum are for the same server")
	errStepped  = errors.New("lockcore: locks may have expired there before their time: use a time service that slews the clock")
	errFormed   = errors.New("lockcore: a majority of the servers has no data of this run: tokens may repeat if a clock is behind")
)

// refusals are the errors of a client with other servers than the quorum.
var refusals = map[quorum.Action]error{quorum.Outdated: errOutdated, quorum.Differs: errDiffers, quorum.Replaced: errReplaced}

// A reporter logs what an examination has found, once.
type reporter struct {
	log     logr.Logger
	servers []redis.Options

	mu          sync.Mutex
	last        quorum.Action
	seenMembers bool
}

func (r *reporter) report(p quorum.Plan, states []quorum.State) {
	r.mu.Lock()
	repeated := r.last == p.Do
	r.last = p.Do
	restarted := r.seenMembers
	for _, s := range states {
		restarted = restarted || s.List.Number > 0
		r.seenMembers = r.seenMembers || s.Member
	}
	r.mu.Unlock()
	addrs := make([]string, 0, len(p.About))
	for _, i := range p.About {
		addrs = append(addrs, r.servers[i].Addr)
	}
	switch {
	case p.Do == quorum.Form && restarted:
		r.log.Error(errFormed, "quorum lost its data; nothing is granted for MaxTTL", "servers", addrs)
	case repeated:
	case p.Do == quorum.Form:
		r.log.Info("no server of the quorum has data: first start, or all data was lost; nothing is granted for MaxTTL", "servers", addrs)
	case refusals[p.Do] != nil:
		r.log.Error(refusals[p.Do], "this process has other servers than the quorum", "servers", addrs)
	case p.Do == quorum.Outside:
		r.log.Error(errOutside, "server of the quorum is not used", "servers", addrs)
	case p.Do == quorum.Double:
		r.log.Error(errDouble, "quorum with one server twice", "servers", addrs)
	case p.Do == quorum.Await:
		r.log.Info("too few servers of the quorum answer to let the others in")
	}
}

// Metrics are the series of each server.
type Metrics []serverMetrics

type serverMetrics struct {
	requests *prometheus.CounterVec // by outcome
	up       prometheus.Gauge
}

func (m *serverMetrics) count(outcome string) { m.requests.WithLabelValues(outcome).Inc() }

// NewMetrics returns the series of the servers. Each has the address of its server as a label, so there are at most
// nine values for each list of servers.
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
