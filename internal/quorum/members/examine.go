package members

import (
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

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Config configures a Quorum.
type Config struct {
	Servers     []redis.Options
	List        int           // number of the list of servers
	MaxTTL      time.Duration // longest TTL of a lease
	Marker      string        // key of a server's state
	State, Join *wire.Script  // quorum_state and quorum_join

	// Background runs a task until its end. It returns false after the client's Close.
	Background func(task func(context.Context)) bool
	Closing    <-chan struct{} // closed when the client is being closed
}

// An examiner reads the states of all servers and lets servers in. It runs one examination at a time, in the
// background.
type examiner struct {
	Config
	log  logr.Logger
	wire *several.Wire

	// Only the running examination uses these fields.
	reported    quorum.Action // action in the last report
	seenMembers bool          // whether a server was a member in a report

	first    chan struct{}          // closed after the first examination
	list     atomic.Pointer[string] // name of the list in force, empty before the first
	acquires atomic.Bool            // whether this client acquires locks, and so lets servers in

	mu        sync.Mutex
	running   bool
	again     bool     // whether another examination is needed
	duplicate error    // two servers are the same one
	refused   error    // the client has other servers than the quorum
	runs      []string // run id in the last grant of each server
	ids       []string // id of each server as a member, see quorum.Plan.MemberIDs
}

const (
	// examinePause is the shortest time between two examinations.
	examinePause = 100 * time.Millisecond
	// examineTimeout is the time for the answer of one server.
	examineTimeout = 3 * time.Second
	// stragglerTimeout is the time for the other answers after a majority has answered. The first examination has
	// only firstStragglerTimeout, and lets no server in, because requests wait for it.
	stragglerTimeout      = time.Second
	firstStragglerTimeout = 10 * time.Millisecond
)

// start begins an examination, or notes that another one is needed.
func (e *examiner) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		e.again = true
		return
	}
	e.running = e.Background(func(ctx context.Context) {
		for {
			select {
			case <-e.first:
				e.examine(ctx, e.acquires.Load(), stragglerTimeout)
			default:
				if !e.examine(ctx, false, firstStragglerTimeout) {
					e.start()
				}
				close(e.first)
			}
			retry.Sleep(ctx, examinePause, e.Closing)
			e.mu.Lock()
			e.running = e.again && ctx.Err() == nil
			e.again = false
			more := e.running
			e.mu.Unlock()
			if !more {
				return
			}
		}
	})
}

// examine examines all servers once and, if admits is set, lets servers in. It returns true if all servers have
// answered and need nothing.
func (e *examiner) examine(ctx context.Context, admits bool, straggler time.Duration) (settled bool) {
	first := e.states(ctx, admits, straggler)
	p := e.plan(first)
	silent := slices.ContainsFunc(first, func(s quorum.State) bool { return !s.Answered })
	change := p.Do == quorum.Join || p.Do == quorum.Form || p.Do == quorum.Raise
	switch {
	case change && admits:
		// The tokens must be read after the servers that lost data have got the numbers of their returns.
		states := e.states(ctx, admits, straggler)
		again := e.plan(states)
		if again.Do != p.Do || again.List.Name() != p.List.Name() { // another client has changed something
			e.start()
			return false
		}
		p = again
		done := e.admit(states, p, quorum.Confirmed(first, states, p.First))
		if p.Enough(done) {
			done = append(done, e.admit(states, p, quorum.Confirmed(first, states, p.Then))...)
		}
		if len(done) > 0 {
			e.start() // the next plan may have further changes
		}
	case p.Do == quorum.Double:
		e.setDuplicate(p.About[0], p.About[1])
	}
	if admits || !change && p.Do != quorum.Await {
		e.report(p, first)
	}
	name := p.List.Name()
	if p.List.InForce() && (admits || slices.ContainsFunc(first, func(s quorum.State) bool { return s.List.Name() == name })) {
		e.list.Store(&name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = nil
	if err := refusals[p.Do]; err != nil {
		e.refused = &wire.NoQuorumError{Permanent: true, Text: strings.TrimPrefix(err.Error(), "lockcore: ")}
	}
	if p.Do != quorum.Double && !silent {
		e.duplicate = nil
		clear(e.runs)
	}
	return !silent && p.Do == quorum.Nothing
}

// plan returns what is to be done, and records the ids of the members for the next plan.
func (e *examiner) plan(states []quorum.State) quorum.Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := quorum.Next(states, e.List, e.MaxTTL.Milliseconds(), e.ids)
	if p.MemberIDs != nil {
		e.ids = p.MemberIDs
	}
	return p
}

// wasMember reports whether this client has seen a server as a member.
func (e *examiner) wasMember(server int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[server] != ""
}

// setDuplicate records that two servers are the same one. No lock is acquired until an examination has
// answers of all servers, and finds no two that are the same.
func (e *examiner) setDuplicate(one, other int) {
	text := fmt.Sprintf("servers[%d] and servers[%d] of NewQuorum are the same server", one, other)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.duplicate = &wire.NoQuorumError{Permanent: true, Text: text}
}

// recordRun records the run of a server that has granted a lock. If another server has this run, the two are the same:
// no examination may have noticed, because the server did not answer at that time.
func (e *examiner) recordRun(server int, run string) {
	e.mu.Lock()
	e.runs[server] = ""
	other := slices.Index(e.runs, run)
	e.runs[server] = run
	e.mu.Unlock()
	if other >= 0 {
		e.setDuplicate(min(server, other), max(server, other))
	}
}

// admit sends quorum_join to servers, and returns those that now have the list of the plan.
func (e *examiner) admit(states []quorum.State, p quorum.Plan, servers []int) (done []int) {
	for _, i := range servers {
		s := &states[i]
		wait := 0
		if p.Waits[i] {
			wait = 1
		}
		r := e.Join.Call(wire.Keys(e.Marker), s.ReturnID, s.List.Name(), p.List.Name(), p.List.Text(), p.IDs[i], p.MaxTTL, strconv.FormatUint(p.MaxToken, 10), wait)
		log := e.log.WithValues("server", e.Servers[i].Addr)
		answer, err := e.wire.Ask(i, r, examineTimeout)
		switch n, err := r.Number(answer, err); {
		case err != nil:
			wire.Log(log, err, "failed to let a server into the quorum")
		case n == 1:
			done = append(done, i)
			if p.Waits[i] {
				log.Info("server is a member of the quorum; it grants nothing for a while", "for", (time.Duration(p.MaxTTL) * time.Millisecond).String())
			}
		}
	}
	return done
}

// states asks all servers for their states. If admits is set, a server without data stores a random text, which admit
// must then repeat.
func (e *examiner) states(ctx context.Context, admits bool, straggler time.Duration) []quorum.State {
	ask := func(int) wire.Request {
		returnID := ""
		if admits {
			returnID = rand.Text()[:10] // 50 bits
		}
		return e.State.Call(wire.Keys(e.Marker), returnID)
	}
	states := make([]quorum.State, len(e.Servers))
	for i, a := range e.wire.Each(ctx, ask, examineTimeout, straggler) {
		if a.Err == nil {
			states[i] = readState(a.Value)
		}
	}
	return states
}

func readState(answer any) (s quorum.State) {
	list, _ := answer.([]any)
	if len(list) != 10 {
		return s
	}
	text := func(at int) string { return wire.Text(list[at]) }
	number := func(at int) int64 {
		n, _ := strconv.ParseInt(text(at), 10, 64) // zero for an empty text
		return n
	}
	s.Run, s.Member, s.ReturnID, s.ID = text(0), text(1) == "member", text(6), text(7)
	s.List, s.Former = quorum.ReadList(text(2), text(8)), strings.Fields(text(9))
	s.WaitLeft, s.MaxTTL, s.MaxToken = number(3), number(4), uint64(number(5))
	s.Answered = s.Run != ""
	return s
}

// report logs what an examination has found, unless the last one has found the same.
func (e *examiner) report(p quorum.Plan, states []quorum.State) {
	repeated := e.reported == p.Do
	e.reported = p.Do
	restarted := e.seenMembers // whether servers had data before
	for _, s := range states {
		restarted = restarted || s.List.Number > 0
		e.seenMembers = e.seenMembers || s.Member
	}
	addrs := make([]string, 0, len(p.About))
	for _, i := range p.About {
		addrs = append(addrs, e.Servers[i].Addr)
	}
	switch {
	case p.Do == quorum.Form && restarted:
		e.log.Error(errFormed, "quorum lost its data; nothing is granted for MaxTTL", "servers", addrs)
	case repeated:
	case p.Do == quorum.Form:
		e.log.Info("no server of the quorum has data: first start, or all data was lost; nothing is granted for MaxTTL", "servers", addrs)
	case refusals[p.Do] != nil:
		e.log.Error(refusals[p.Do], "this process has other servers than the quorum", "servers", addrs)
	case p.Do == quorum.Outside:
		e.log.Error(errOutside, "server of the quorum is not used", "servers", addrs)
	case p.Do == quorum.Double:
		e.log.Error(errDouble, "quorum with one server twice", "servers", addrs)
	case p.Do == quorum.Await:
		e.log.Info("too few servers of the quorum answer to let the others in")
	}
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

// refusals are the errors of a client with other servers than the quorum.
var refusals = map[quorum.Action]error{quorum.Outdated: errOutdated, quorum.Differs: errDiffers, quorum.Replaced: errReplaced}
