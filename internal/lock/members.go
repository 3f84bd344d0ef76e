package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// Members are the topology of NewQuorum. It admits the servers of a quorum: at their first start,
// after a loss of data, and after a change of the list. All rules are in internal/quorum and in the scripts, so any number
// of Clients may do this at the same time.
//
// It examines the servers when one of them has answered that it is not a member. So it costs
// nothing while all are. A Client that acquires no locks only looks.
type members struct {
	c       *Client
	wire    *several.Wire
	targets []redis.Options
	list    int // number
	longest time.Duration

	marker string // key

	counts []serverMetrics // by server
	clocks []serverClock   // by server, guarded by mu

	examined chan struct{} // closed after the first examination

	current  atomic.Pointer[string] // name of the list
	acquires atomic.Bool            // see Quorum.Admit

	mu      sync.Mutex
	started bool
	fault   error    // two servers are the same one
	refused error    // the Client has other servers than the quorum
	runs    []string // of the servers, in their last grants
	ids     []string // of the servers, see quorum.Plan.Known
	running bool
	again   bool
	last    quorum.Action // that was logged
	worked  bool          // this Client has seen members
}

// A serverClock is what is known about the clock of a server: how far it is ahead of the time that
// has elapsed here. That is between two bounds, as it was read at some time during a request.
type serverClock struct {
	from, to time.Duration
	read     time.Duration // when; 0: never
	distrust time.Duration // until then its grants do not count
}

// examinePause is the shortest time between two examinations.
const examinePause = 100 * time.Millisecond

// examineWithin is how long a server may take to answer one, and examineRest how long one may take after
// a majority has answered. Requests wait for the first examination, so it takes glanceRest, and nobody is
// let in with what it has found.
const (
	examineWithin = 3 * time.Second
	examineRest   = time.Second
	glanceRest    = 10 * time.Millisecond
)

func newMembers(c *Client, targets []redis.Options, counts []serverMetrics, cfg wire.Config, list int, longest time.Duration) *members {
	m := &members{
		c: c, targets: targets, counts: counts, list: list, longest: longest,
		marker: c.keys.marker(), examined: make(chan struct{}),
		clocks: make([]serverClock, len(targets)), runs: make([]string, len(targets)), ids: make([]string, len(targets)),
	}
	m.current.Store(new(string))
	m.wire = several.New(targets, cfg, several.Watchers{Health: m.health, Answered: m.answered, Failed: m.failed})
	return m
}

// failed is called for each request that has failed.
func (m *members) failed(server int, skipped bool) {
	if skipped {
		m.counts[server].count("skipped")
	} else {
		m.counts[server].count("failed")
	}
}

// health is called when a server stops to answer, or begins to.
func (m *members) health(server int, err error) {
	if err != nil {
		m.counts[server].up.Set(0)
		wire.Log(m.c.log, err, "server of the quorum does not answer", "server", m.targets[server].Addr)
		return
	}
	m.counts[server].up.Set(1)
	m.c.log.Info("server of the quorum answers again", "server", m.targets[server].Addr)
}

// answered is called with each answer of a server.
func (m *members) answered(server int, value any, began time.Duration) {
	list, _ := value.([]any)
	code := int64(0)
	if len(list) > 0 {
		code, _ = list[0].(int64)
	}
	counts := &m.counts[server]
	switch code {
	case quorum.Lost:
		counts.count("lost_data")
	case quorum.OtherList:
		counts.count("other_list")
	case quorum.Waiting:
		counts.count("waiting")
		return
	case quorum.TooLong:
		counts.count("ttl_too_long")
	default:
		counts.count("answered")
		if code == quorum.Granted && !m.heard(server) {
			m.examine() // its id is needed if it loses its data
		}
		if code == quorum.Granted && len(list) == 4 { // of an acquire
			m.readRun(server, wire.Text(list[2]))
			if clock, err := strconv.ParseInt(wire.Text(list[3]), 10, 64); err == nil {
				m.readClock(server, clock, began)
			}
		}
		return
	}
	m.examine()
}

// ready waits for the first examination, for at most within. It finds out whether two servers are the same one.
func (m *members) ready(ctx context.Context, within time.Duration) (left time.Duration, err error) {
	m.mu.Lock()
	first := !m.started
	m.started = true
	m.mu.Unlock()
	if first {
		m.examine()
	}
	until := time.Now().Add(within)
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-m.examined:
	case <-timer.C:
	case <-ctx.Done():
		return 0, ended(ctx)
	case <-m.c.closing:
		return 0, ErrClosed
	}
	if left = time.Until(until); left <= 0 {
		return 0, &wire.NoQuorumError{Text: "no majority of the servers has answered in time", Of: []error{wire.NotSent(wire.NoAnswer(within))}}
	}
	m.mu.Lock()
	fault := cmp.Or(m.fault, m.refused)
	m.mu.Unlock()
	if fault != nil {
		m.examine() // it may have been mended
	}
	return left, fault
}

// examine begins an examination, or notes that another one is needed.
func (m *members) examine() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		m.again = true
		return
	}
	m.running = m.c.Background(func(ctx context.Context) {
		for {
			select {
			case <-m.examined:
				m.look(ctx, false)
			default:
				m.look(ctx, true)
				close(m.examined)
			}
			retry.Sleep(ctx, examinePause, m.c.closing)
			m.mu.Lock()
			m.running = m.again && ctx.Err() == nil
			m.again = false
			more := m.running
			m.mu.Unlock()
			if !more {
				return
			}
		}
	})
}

// name returns the name of the list, as the servers know it. It is empty until that is known.
func (m *members) name() string { return *m.current.Load() }

// look examines all servers once, and admits those that may come, if this Client acquires locks. A glance takes
// less time, and admits none.
func (m *members) look(ctx context.Context, glance bool) {
	admits, rest := m.acquires.Load() && !glance, examineRest
	if glance {
		rest = glanceRest
	}
	first := m.states(ctx, admits, rest)
	p := m.plan(first)
	silent := slices.ContainsFunc(first, func(s quorum.State) bool { return !s.Known })
	if glance && (silent || p.Do != quorum.Nothing) {
		m.examine()
	}
	change := p.Do == quorum.Join || p.Do == quorum.Form || p.Do == quorum.Raise
	switch {
	case change && admits:
		// The tokens must be read after the servers that lost data have got the numbers of
		// their returns.
		states := m.states(ctx, admits, rest)
		again := m.plan(states)
		if again.Do != p.Do || again.List.Name() != p.List.Name() {
			m.examine()
			return
		}
		p = again
		done := m.admit(states, p, quorum.Confirmed(first, states, p.First))
		if p.Enough(done) {
			done = append(done, m.admit(states, p, quorum.Confirmed(first, states, p.Then))...)
		}
		if len(done) > 0 {
			m.examine() // there may be more to do
		}
	case p.Do == quorum.Double:
		m.double(p.About[0], p.About[1])
	}
	if admits || !change && p.Do != quorum.Await {
		m.report(p, first)
	}
	name := p.List.Name()
	if p.List.InForce() && (admits || slices.ContainsFunc(first, func(s quorum.State) bool { return s.List.Name() == name })) {
		m.current.Store(&name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = nil
	if err := refusals[p.Do]; err != nil {
		m.refused = &wire.NoQuorumError{Permanent: true, Text: strings.TrimPrefix(err.Error(), "lockcore: ")}
	}
	if p.Do != quorum.Double && !silent {
		m.fault = nil
		clear(m.runs)
	}
}

// plan returns what is to be done, and remembers the ids of the servers.
func (m *members) plan(states []quorum.State) quorum.Plan {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := quorum.Next(states, m.list, millis(m.longest), m.ids)
	if p.Known != nil {
		m.ids = p.Known
	}
	return p
}

// heard reports whether a server was seen as a member.
func (m *members) heard(server int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ids[server] != ""
}

// double records that two servers are the same one. Nothing is acquired until an examination has an
// answer of each server, and no two are the same.
func (m *members) double(one, other int) {
	text := fmt.Sprintf("servers[%d] and servers[%d] of NewQuorum are the same server", one, other)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = &wire.NoQuorumError{Permanent: true, Text: text}
}

// readRun takes the run of a server that has granted a lock. A server that is given twice may have
// been down at the first examination.
func (m *members) readRun(server int, run string) {
	m.mu.Lock()
	m.runs[server] = ""
	other := slices.Index(m.runs, run)
	m.runs[server] = run
	m.mu.Unlock()
	if other >= 0 {
		m.double(min(server, other), max(server, other))
	}
}

// admit lets servers in, or gives them the list, and returns those that have it.
func (m *members) admit(states []quorum.State, p quorum.Plan, whom []int) (done []int) {
	for _, i := range whom {
		s := &states[i]
		wait := 0
		if p.Waits[i] {
			wait = 1
		}
		r := m.c.scripts.quorumJoin.Call(wire.Keys(m.marker), s.Return, s.List.Name(), p.List.Name(), p.List.Text(), p.IDs[i], p.Longest, strconv.FormatUint(p.Top, 10), wait)
		about := []any{"server", m.targets[i].Addr}
		answer, err := m.wire.Ask(i, r, examineWithin)
		switch n, err := r.Number(answer, err); {
		case err != nil:
			wire.Log(m.c.log, err, "failed to let a server into the quorum", about...)
		case n == 1:
			done = append(done, i)
			if p.Waits[i] {
				m.c.log.Info("server is a member of the quorum; it grants nothing for a while", append(about, "for", (time.Duration(p.Longest)*time.Millisecond).String())...)
			}
		}
	}
	return done
}

var (
	errOutdated = errors.New("lockcore: a server has a later list, or one with another number of servers: QuorumConfig.List and the servers must be the same everywhere")
	errDiffers  = errors.New("lockcore: other clients have other servers under the same QuorumConfig.List, or a server belongs to another quorum: give all clients the same servers, and increase List by one")
	errReplaced = errors.New("lockcore: at least half of the servers have never been in this quorum, or have lost their data: replace less than half at a time; after a loss of data, follow docs/OPERATIONS.md, \"Servers of a quorum\"")
	errOutside  = errors.New("lockcore: a server is not in the list of the quorum, and this process has never seen a member at its address: correct the servers of this process. If the member has lost its data and no other process lets it in, increase QuorumConfig.List by one everywhere")
	errDouble   = errors.New("lockcore: two of the clients given to NewQuorum are for the same server")
	errStepped  = errors.New("lockcore: locks may have expired there before their time: use a time service that slews the clock")
	errFormed   = errors.New("lockcore: a majority of the servers has no data of this run: tokens may repeat if a clock is behind")
)

// refusals are the errors of a Client whose servers are not those of the quorum.
var refusals = map[quorum.Action]error{quorum.Outdated: errOutdated, quorum.Differs: errDiffers, quorum.Replaced: errReplaced}

// report logs what was found, once.
func (m *members) report(p quorum.Plan, states []quorum.State) {
	do := p.Do
	m.mu.Lock()
	known := m.last == do
	m.last = do
	worked := m.worked
	for _, s := range states {
		worked = worked || s.List.Number > 0
		m.worked = m.worked || s.Member
	}
	m.mu.Unlock()
	servers := make([]string, 0, len(p.About))
	for _, i := range p.About {
		servers = append(servers, m.targets[i].Addr)
	}
	switch {
	case do == quorum.Form && worked:
		m.c.log.Error(errFormed, "quorum lost its data; nothing is granted for MaxTTL", "servers", servers)
	case known:
	case do == quorum.Form:
		m.c.log.Info("no server of the quorum has data: first start, or all data was lost; nothing is granted for MaxTTL", "servers", servers)
	case refusals[do] != nil:
		m.c.log.Error(refusals[do], "this process has other servers than the quorum", "servers", servers)
	case do == quorum.Outside:
		m.c.log.Error(errOutside, "server of the quorum is not used", "servers", servers)
	case do == quorum.Double:
		m.c.log.Error(errDouble, "quorum with one server twice", "servers", servers)
	case do == quorum.Await:
		m.c.log.Info("too few servers of the quorum answer to let the others in")
	}
}

// states asks all servers. A server without data gets the number of a return only if it may be let in.
func (m *members) states(ctx context.Context, admits bool, rest time.Duration) []quorum.State {
	ask := func(int) wire.Request {
		number := ""
		if admits {
			number = rand.Text()[:10] // 50 bits
		}
		return m.c.scripts.quorumState.Call(wire.Keys(m.marker), number)
	}
	states := make([]quorum.State, len(m.targets))
	for i, a := range m.wire.Each(ctx, ask, examineWithin, rest) {
		if a.Err == nil {
			states[i] = stateOf(a.Value)
		}
	}
	return states
}

// stateOf reads the answer of quorum_state.
func stateOf(answer any) (s quorum.State) {
	list, _ := answer.([]any)
	if len(list) != 10 {
		return s
	}
	text := func(at int) string { return wire.Text(list[at]) }
	number := func(at int) int64 {
		n, _ := strconv.ParseInt(text(at), 10, 64) // 0: none
		return n
	}
	s.Run, s.Member, s.Return, s.ID = text(0), text(1) == "member", text(6), text(7)
	s.List, s.Former = quorum.ReadList(text(2), text(8)), strings.Fields(text(9))
	s.Left, s.Longest, s.Top = number(3), number(4), uint64(number(5))
	s.Known = s.Run != ""
	return s
}
