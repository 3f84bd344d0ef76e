// Package members keeps the servers of a quorum: it lets them in, counts their answers, and watches their clocks.
// Package quorum has the rules, and the scripts quorum_state and quorum_join apply them, so any number of clients may
// do this at the same time.
//
// A Quorum examines its servers before the first request, and when a server has answered that it is no member. So
// examinations cost nothing while all servers are members. A client that acquires no locks lets no server in.
//
//	members.go ─► examine.go, clocks.go     count.go: one answer from the answers of all servers
package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Quorum has the servers of a client of NewQuorum. Package lock sends requests through its Wire.
type Quorum struct {
	Marker string // key of the state of each server, see quorum_join.lua
	MaxTTL time.Duration
	Wire   *several.Wire

	examiner examiner
	clocks   clocks
	metrics  Metrics
	now      func() time.Duration // elapsed time
	started  sync.Once
}

// New returns a Quorum. It sends nothing before the first request.
func New(cfg Config, metrics Metrics, config wire.Config) *Quorum {
	n := len(cfg.Servers)
	q := &Quorum{
		Marker: cfg.Marker, MaxTTL: cfg.MaxTTL,
		examiner: examiner{
			Config: cfg, log: config.Logger, first: make(chan struct{}), runs: make([]string, n), ids: make([]string, n),
		},
		clocks:  clocks{maxTTL: cfg.MaxTTL, servers: make([]serverClock, n)},
		metrics: metrics,
		now:     config.Now,
	}
	q.examiner.list.Store(new(string))
	q.Wire = several.New(cfg.Servers, config, several.Watchers{Health: q.health, Answered: q.answered, Failed: q.failed})
	q.examiner.wire = q.Wire
	return q
}

// List returns the name of the list of servers that the client has. It may change, and is empty until it is known.
func (q *Quorum) List() string { return *q.examiner.list.Load() }

// Admit makes examinations let servers in from now on. It is called before the client acquires a lock.
func (q *Quorum) Admit() { q.examiner.acquires.Store(true) }

// Distrusts reports whether grants of a server do not count now, because its clock was stepped.
func (q *Quorum) Distrusts(server int) bool { return q.clocks.distrusts(server, q.now()) }

// Majority returns how many servers are a majority.
func (q *Quorum) Majority() int { return quorum.Majority(len(q.examiner.Servers)) }

func (q *Quorum) failed(server int, skipped bool) {
	outcome := "failed"
	if skipped {
		outcome = "skipped"
	}
	q.metrics[server].count(outcome)
}

func (q *Quorum) health(server int, err error) {
	e := &q.examiner
	if err != nil {
		q.metrics[server].up.Set(0)
		wire.Log(e.log, err, "server of the quorum does not answer", "server", e.Servers[server].Addr)
		return
	}
	q.metrics[server].up.Set(1)
	e.log.Info("server of the quorum answers again", "server", e.Servers[server].Addr)
}

// refusalOutcomes are the values of the label outcome for answers that grant nothing, by code.
var refusalOutcomes = map[int64]string{
	quorum.Lost: "lost_data", quorum.OtherList: "other_list", quorum.Waiting: "waiting", quorum.TooLong: "ttl_too_long",
}

func (q *Quorum) answered(server int, value any, began time.Duration) {
	list, _ := value.([]any)
	code := int64(0)
	if len(list) > 0 {
		code, _ = list[0].(int64)
	}
	e, refusal := &q.examiner, refusalOutcomes[code]
	q.metrics[server].count(cmp.Or(refusal, "answered"))
	if refusal != "" && code != quorum.Waiting || code == quorum.Granted && !e.wasMember(server) {
		e.start() // to learn the id of a new member, which this client needs if the member loses its data
	}
	if code != quorum.Granted || len(list) != 4 {
		return // not a grant of a lock
	}
	e.recordRun(server, wire.Text(list[2]))
	clock, err := strconv.ParseInt(wire.Text(list[3]), 10, 64)
	if err != nil {
		return
	}
	if step := q.clocks.read(server, clock, began, q.now()); step > 0 {
		e.log.Error(errStepped, "the clock of a server of the quorum was stepped; its grants do not count for MaxTTL",
			"server", e.Servers[server].Addr, "by", step.Round(time.Millisecond).String())
	}
}

// Ready waits for the first examination, for at most within. The examination finds out whether two servers are the
// same one.
func (q *Quorum) Ready(ctx context.Context, within time.Duration) (left time.Duration, err error) {
	e := &q.examiner
	q.started.Do(e.start)
	until := time.Now().Add(within)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-e.first:
	case <-timer.C:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-e.Closing:
		return 0, wire.ErrClosed
	}
	if left = time.Until(until); left <= 0 {
		return 0, &wire.NoQuorumError{Text: "no majority of the servers has answered in time", Of: []error{wire.NotSent(wire.NoAnswer(within))}}
	}
	e.mu.Lock()
	err = cmp.Or(e.duplicate, e.refused)
	e.mu.Unlock()
	if err != nil {
		e.start() // the user may have corrected the servers
	}
	return left, err
}

// A View is the answer of one server to a request of Views, and the server's state.
type View struct {
	Address string
	Answer  wire.Answer
	State   quorum.State
}

// Views sends a request to each server once.
func (q *Quorum) Views(ctx context.Context, r wire.Request, within time.Duration) ([]View, error) {
	e := &q.examiner
	done := make(chan []View, 1)
	if !e.Background(func(ctx context.Context) {
		views := make([]View, len(e.Servers))
		for i, a := range e.wire.Each(ctx, func(int) wire.Request { return r }, within, within) {
			views[i] = View{Address: e.Servers[i].Addr, Answer: a}
		}
		for i, s := range e.states(ctx, false, stragglerTimeout) {
			views[i].State = s
			if views[i].Answer.Err == nil && !s.Answered {
				views[i].Answer.Err = errors.New("lockcore: the server did not answer about its state")
			}
		}
		done <- views
	}) {
		return nil, wire.ErrClosed
	}
	select {
	case views := <-done:
		return views, nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(ctx.Err(), err) {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, ctx.Err()
	}
}

// Shortage returns the error of a request to which too few servers gave a good answer. refused has the other answers.
func (q *Quorum) Shortage(r wire.Request, refused map[int]wire.Answer) error {
	return shortage(r, refused, nil, len(q.examiner.Servers))
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
