package lockcore

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

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
)

// A quorumTopology is the topology of NewQuorum. It admits the servers of a quorum: at their first start,
// after a loss of data, and after a change of the list. All rules are in internal/quorum and in the scripts, so any number
// of Clients may do this at the same time.
//
// It examines the servers when one of them has answered that it is not a member. So it costs
// nothing while all are.
type quorumTopology struct {
	c       *Client
	wire    *wire.Quorum
	targets []*wire.Target
	list    int // number
	longest time.Duration

	marker    string // key
	markerArg any    // marker, as an argument of requests

	counts []serverMetrics // by server
	clocks []serverClock   // by server, guarded by mu

	examined chan struct{} // closed after the first examination

	current atomic.Pointer[string] // name of the list

	mu      sync.Mutex
	started bool
	fault   error    // two servers are the same one
	refused error    // the Client has other servers than the quorum
	runs    []string // of the servers, in their last grants
	ids     []string // of the servers, when they answered last
	running bool
	again   bool
	last    quorum.Action // that was logged
	worked  bool          // this Client has seen members
}

// examinePause is the shortest time between two examinations.
const examinePause = 100 * time.Millisecond

// examineWithin is how long a server may take to answer one.
const examineWithin = time.Second

func newQuorumTopology(c *Client, targets []*wire.Target, counts []serverMetrics, cfg wire.Config, list int, longest time.Duration) *quorumTopology {
	k := &quorumTopology{
		c: c, targets: targets, counts: counts, list: list, longest: longest,
		marker: c.keys.marker(), examined: make(chan struct{}),
		clocks: make([]serverClock, len(targets)), runs: make([]string, len(targets)), ids: make([]string, len(targets)),
	}
	k.markerArg = k.marker
	k.current.Store(new(string))
	k.wire = wire.NewQuorum(targets, cfg, wire.Watchers{Health: k.health, Answered: k.answered, Failed: k.failed})
	return k
}

// failed is called for each request that has failed.
func (k *quorumTopology) failed(server int, skipped bool) {
	if skipped {
		k.counts[server].skipped.Inc()
	} else {
		k.counts[server].failed.Inc()
	}
}

// health is called when a server stops to answer, or begins to.
func (k *quorumTopology) health(server int, err error) {
	if err != nil {
		k.counts[server].up.Set(0)
		wire.Log(k.c.log, err, "server of the quorum does not answer", "server", k.targets[server].Address())
		return
	}
	k.counts[server].up.Set(1)
	k.c.log.Info("server of the quorum answers again", "server", k.targets[server].Address())
}

// answered is called with each answer of a server.
func (k *quorumTopology) answered(server int, value any, began time.Duration) {
	list, _ := value.([]any)
	code := int64(0)
	if len(list) > 0 {
		code, _ = list[0].(int64)
	}
	counts := &k.counts[server]
	switch code {
	case quorum.Lost:
		counts.lost.Inc()
	case quorum.OtherList:
		counts.otherList.Inc()
	case quorum.Waiting:
		counts.waiting.Inc()
		return
	case quorum.TooLong:
		counts.tooLong.Inc()
	default:
		counts.answered.Inc()
		if code == quorum.Granted && len(list) == 4 { // of an acquire
			k.readRun(server, wire.Text(list[2]))
			if clock, err := strconv.ParseInt(wire.Text(list[3]), 10, 64); err == nil {
				k.readClock(server, clock, began)
			}
		}
		return
	}
	k.examine()
}

// A serverClock is what is known about the clock of a server: how far it is ahead of the time that
// has elapsed here. That is between two bounds, as it was read at some time during a request.
type serverClock struct {
	from, to time.Duration
	read     time.Duration // when; 0: never
	distrust time.Duration // until then its grants do not count
}

// slewed is how far a clock may be ahead of what was expected without a step: it runs at another
// rate, by less than a thousandth.
func slewed(since time.Duration) time.Duration { return 50*time.Millisecond + since/1000 }

// readClock takes the clock (µs) that a server has answered to a request that began at a time. If it
// was stepped forward since the last one, locks of others may have expired there before their time.
func (k *quorumTopology) readClock(server int, clock int64, began time.Duration) {
	now := k.c.clock.Ticks()
	at := time.Duration(clock) * time.Microsecond
	from, to := at-now, at-began
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.clocks[server]
	slack := slewed(now - s.read)
	step := from - s.to
	forward := s.read > 0 && step > slack
	if forward {
		s.distrust = now + k.longest
		k.c.log.Error(errStepped, "the clock of a server of the quorum was stepped; its grants do not count for MaxTTL", "server", k.targets[server].Address(), "by", step.Round(time.Millisecond).String())
	}
	if s.read == 0 || forward || to < s.from-slack || to-from <= s.to-s.from+slack {
		s.from, s.to, s.read = from, to, max(1, now)
	}
}

// distrusts reports whether the clock of a server was stepped forward within the longest TTL. A Client
// that has had no grant of the server before the step cannot know.
func (k *quorumTopology) distrusts(server int) bool {
	now := k.c.clock.Ticks()
	k.mu.Lock()
	defer k.mu.Unlock()
	return now < k.clocks[server].distrust
}

// ready waits for the first examination. It finds out whether two servers are the same one.
func (k *quorumTopology) ready(ctx context.Context) error {
	k.mu.Lock()
	first := !k.started
	k.started = true
	k.mu.Unlock()
	if first {
		k.examine()
	}
	select {
	case <-k.examined:
	case <-ctx.Done():
		return ended(ctx)
	case <-k.c.closing:
		return ErrClosed
	}
	k.mu.Lock()
	fault := cmp.Or(k.fault, k.refused)
	k.mu.Unlock()
	if fault != nil {
		k.examine() // it may have been mended
	}
	return fault
}

// examine begins an examination, or notes that another one is needed.
func (k *quorumTopology) examine() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running {
		k.again = true
		return
	}
	k.running = k.c.background(func(ctx context.Context) {
		for {
			k.admitMembers()
			select {
			case <-k.examined:
			default:
				close(k.examined)
			}
			retry.Sleep(ctx, examinePause, k.c.closing)
			k.mu.Lock()
			k.running = k.again && ctx.Err() == nil
			k.again = false
			more := k.running
			k.mu.Unlock()
			if !more {
				return
			}
		}
	})
}

// name returns the name of the list, as the servers know it. It is empty until that is known.
func (k *quorumTopology) name() string { return *k.current.Load() }

// admitMembers examines all servers once, and admits those that may come.
func (k *quorumTopology) admitMembers() {
	first := k.states()
	p := k.plan(first)
	switch p.Do {
	case quorum.Join, quorum.Form, quorum.Raise:
		// The tokens must be read after the servers that lost data have got the numbers of
		// their returns.
		states := k.states()
		again := k.plan(states)
		if again.Do != p.Do || again.List.Name() != p.List.Name() {
			k.examine()
			return
		}
		p = again
		done := k.admit(states, p, quorum.Confirmed(first, states, p.First))
		if p.Enough(done) {
			done = append(done, k.admit(states, p, quorum.Confirmed(first, states, p.Then))...)
		}
		if len(done) > 0 {
			k.examine() // there may be more to do
		}
	case quorum.Double:
		k.double(p.About[0], p.About[1])
	default:
	}
	k.report(p, first)
	if p.List.InForce() {
		name := p.List.Name()
		k.current.Store(&name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = nil
	if err := refusals[p.Do]; err != nil {
		k.refused = &wire.NoQuorumError{Permanent: true, Text: strings.TrimPrefix(err.Error(), "lockcore: ")}
	}
	if p.Do != quorum.Double && !slices.ContainsFunc(first, func(s quorum.State) bool { return !s.Known }) {
		k.fault = nil
		clear(k.runs)
	}
}

// plan returns what is to be done, and remembers the ids of the servers.
func (k *quorumTopology) plan(states []quorum.State) quorum.Plan {
	p := quorum.Next(states, k.list, millis(k.longest), k.ids)
	for i, id := range p.IDs {
		if id != "" {
			k.ids[i] = id
		}
	}
	return p
}

// double records that two servers are the same one. Nothing is acquired until an examination has an
// answer of each server, and no two are the same.
func (k *quorumTopology) double(one, other int) {
	text := fmt.Sprintf("servers[%d] and servers[%d] of NewQuorum are the same server", one, other)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = &wire.NoQuorumError{Permanent: true, Text: text}
}

// readRun takes the run of a server that has granted a lock. A server that is given twice may have
// been down at the first examination.
func (k *quorumTopology) readRun(server int, run string) {
	k.mu.Lock()
	k.runs[server] = ""
	other := slices.Index(k.runs, run)
	k.runs[server] = run
	k.mu.Unlock()
	if other >= 0 {
		k.double(min(server, other), max(server, other))
	}
}

// admit lets servers in, or gives them the list, and returns those that have it.
func (k *quorumTopology) admit(states []quorum.State, p quorum.Plan, whom []int) (done []int) {
	for _, i := range whom {
		s := &states[i]
		wait := 0
		if p.Waits[i] {
			wait = 1
		}
		r := k.c.scripts.quorumJoin.Call(wire.Keys(k.marker), s.Return, s.List.Name(), p.List.Name(), p.List.Text(), p.IDs[i], p.Longest, strconv.FormatUint(p.Top, 10), wait)
		about := []any{"server", k.targets[i].Address()}
		answer, err := k.wire.Ask(i, r, examineWithin)
		switch n, err := r.Number(answer, err); {
		case err != nil:
			wire.Log(k.c.log, err, "failed to let a server into the quorum", about...)
		case n == 1:
			done = append(done, i)
			if p.Waits[i] {
				k.c.log.Info("server is a member of the quorum; it grants nothing for a while", append(about, "for", (time.Duration(p.Longest)*time.Millisecond).String())...)
			}
		}
	}
	return done
}

var (
	errOutdated = errors.New("lockcore: a server has a later list, or one with another number of servers: QuorumConfig.List and the servers must be the same everywhere")
	errDiffers  = errors.New("lockcore: other clients have other servers under the same QuorumConfig.List, or a server belongs to another quorum: give all clients the same servers, and increase List by one")
	errReplaced = errors.New("lockcore: at least half of the servers have never been in this quorum, or have lost their data: replace less than half at a time; after a loss of data, follow docs/OPERATIONS.md, \"Servers of a quorum\"")
	errDouble   = errors.New("lockcore: two of the clients given to NewQuorum are for the same server")
	errStepped  = errors.New("lockcore: locks may have expired there before their time: use a time service that slews the clock")
	errFormed   = errors.New("lockcore: a majority of the servers has no data of this run: tokens may repeat if a clock is behind")
)

// refusals are the errors of a Client whose servers are not those of the quorum.
var refusals = map[quorum.Action]error{quorum.Differs: errDiffers, quorum.Replaced: errReplaced}

// report logs what was found, once.
func (k *quorumTopology) report(p quorum.Plan, states []quorum.State) {
	do := p.Do
	k.mu.Lock()
	known := k.last == do
	k.last = do
	worked := k.worked
	for _, s := range states {
		worked = worked || s.List.Number > 0
		k.worked = k.worked || s.Member
	}
	k.mu.Unlock()
	servers := make([]string, 0, len(p.About))
	for _, i := range p.About {
		servers = append(servers, k.targets[i].Address())
	}
	switch {
	case do == quorum.Form && worked:
		k.c.log.Error(errFormed, "quorum lost its data; nothing is granted for MaxTTL", "servers", servers)
	case known:
	case do == quorum.Form:
		k.c.log.Info("no server of the quorum has data: first start, or all data was lost; nothing is granted for MaxTTL", "servers", servers)
	case do == quorum.Outdated:
		k.c.log.Error(errOutdated, "this process has another list of servers than the quorum", "servers", servers)
	case refusals[do] != nil:
		k.c.log.Error(refusals[do], "this process has other servers than the quorum", "servers", servers)
	case do == quorum.Double:
		k.c.log.Error(errDouble, "quorum with one server twice", "servers", servers)
	case do == quorum.Await:
		k.c.log.Info("too few servers of the quorum answer to let the others in")
	}
}

// states asks all servers.
func (k *quorumTopology) states() []quorum.State {
	ask := func(int) wire.Request {
		return k.c.scripts.quorumState.Call(wire.Keys(k.marker), rand.Text()[:10]) // 50 bits
	}
	states := make([]quorum.State, len(k.targets))
	for i, a := range k.wire.Each(ask, examineWithin) {
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

func (k *quorumTopology) kind() queueKind { return quorumKind{of: k} }

func (k *quorumTopology) refusal(of kind, terms *leaseTerms) error {
	if _, owned := of.(ownedKind); owned {
		return &ConfigError{Field: "the Client of a lock with owners", Value: "of NewQuorum", Rule: "of New: entries of owners cannot be counted across servers"}
	}
	switch {
	case terms.replicas > 0:
		return refuse("LeaseConfig.MinReplicas", "0 for a Client of NewQuorum, whose servers have no replicas", terms.replicas)
	case terms.ttl > k.longest:
		return refuse("LeaseConfig.TTL", "at most QuorumConfig.MaxTTL ("+k.longest.String()+")", terms.ttl)
	}
	return nil
}

func (k *quorumTopology) one(what string) error {
	return &ConfigError{Field: "the Client of " + what, Value: "of NewQuorum", Rule: "of New: the servers of a quorum have different views; use New with one of them"}
}

func (k *quorumTopology) scripts() []*wire.Script {
	s := k.c.scripts
	return []*wire.Script{s.quorumAcquire, s.quorumRenew, s.quorumLeave, s.quorumState, s.quorumJoin}
}

func (k *quorumTopology) wait(ctx context.Context, m *Mutex) (*Lease, acquireReply, error) {
	return m.waitByTrying(ctx)
}

func (k *quorumTopology) counted(a *attempt, r wire.Request) wire.Request {
	return r.Counted(countRenewal(r), &a.trail)
}

// lossOf: there is no ForceRelease.
func (k *quorumTopology) lossOf(context.Context, *attempt) error { return ErrLeaseLost }

func (k *quorumTopology) quorum() *engine.Quorum {
	return &engine.Quorum{Marker: k.marker, List: k.name}
}

func (k *quorumTopology) drain(ctx context.Context) { k.wire.Drain(ctx) }
