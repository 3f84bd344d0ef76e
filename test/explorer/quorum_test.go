package explorer

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/quorum"
	"github.com/noonlock/noonlock/internal/testing/servers"
)

// quorumModel models two clients of a Mutex on three servers, with the real scripts and the real
// rules of internal/quorum. Each client follows the rules of lockcore: attempt.sendAcquire,
// attempt.confirm, quorumTopology.admit and several.Trail.
//
// A client sends each request to all servers at once. One server may be unreachable; more lost
// requests, lost answers and late requests are faults. The clocks of the servers add nothing to
// the tokens, because the first token is far ahead of them.
type quorumModel struct {
	quorumTrial
	atlas   *atlas
	servers []*redisServer
	scripts [5]script // by quorumOp
	flaw    flaw

	mu    sync.Mutex
	calls map[quorumCall]quorumReply
	lists []quorum.List // of servers; requests and clients have their index
}

// A flaw is a rule of the clients that is left out, to show that the exploration needs it.
type flaw uint8

const (
	noFlaw           flaw = iota
	minorityGrants        // one server is enough for an acquire
	minorityConfirms      // one server is enough for a renewal
	firstProposal         // the token is that of any server, not the greatest
	lateStart             // the validity counts from the confirmation
	oneReader             // the greatest token is read from one member
	strangerAdmits        // a client lets a server in whose place it does not know
	flaws
)

var flawNames = [flaws]string{
	"none", "a minority grants", "a minority confirms", "the token is any proposal", "the validity counts from the confirmation",
	"one member knows the last token", "a client lets in a server whose place it does not know",
}

const (
	quorumServers = 3
	quorumClients = 2
	quorumTTL     = 2 // s
	firstToken    = int64(4_000_000_000_000_000)
	attemptsEach  = 3
)

type quorumOp uint8

const (
	quorumAcquire quorumOp = iota
	quorumRenew
	quorumLeave
	quorumState
	quorumJoin
)

var quorumScripts = [...]string{"quorum_acquire", "quorum_renew", "quorum_leave", "quorum_state", "quorum_join"}

// A quorumRequest is a request to one server, without the server.
type quorumRequest struct {
	op      quorumOp
	attempt uint8 // client*attemptsEach + number
	token   uint8 // since firstToken
	list    uint8
	id      uint8 // of a return
	had     uint8 // list of the server when it was examined
	as      uint8 // id of the server, see idText
	wait    bool
	tomb    bool
}

type quorumCall struct {
	world worldID
	quorumRequest
}

type quorumReply struct {
	world  worldID
	code   int64
	token  uint8
	state  quorum.State
	broken string
}

// A quorumClient is one client.
type quorumClient struct {
	phase   quorumPhase
	list    uint8
	number  uint8 // of its attempt
	age     uint8 // s since the first request
	belief  uint8 // s for which the lease counts as valid
	token   uint8
	unsure  uint8 // servers that may still get a request of the attempt
	reached uint8 // servers that may have got one
}

type quorumPhase uint8

const (
	quorumIdle quorumPhase = iota
	quorumGranted
	quorumHolding
	quorumLeaving
	quorumDead
)

type quorumWorld struct {
	world  [quorumServers]worldID
	disk   [quorumServers]worldID
	c      [quorumClients]quorumClient
	late   [3]quorumLate
	warden struct { // an examination that has begun
		began   bool
		returns [quorumServers]uint8
	}
	greatest       uint8 // token of all leases
	faults, losses uint8
}

// quorumGrammar knows the times in the markers.
type quorumGrammar struct{}

const quorumMarker = "noonlock:quorum"

func (quorumGrammar) numbers(k *key, visit func(meaning, string) string) {
	for i, p := range k.pairs {
		if k.name == quorumMarker && p.name == "after" {
			k.pairs[i].value = visit(instant, p.value)
		}
	}
}

func (quorumGrammar) lasting(name string) bool { return strings.HasPrefix(name, "tomb") }

func (quorumGrammar) tidy(w world) world { return w }

func (quorumGrammar) derive(world) facts { return facts{} }

// A quorumTrial is one exploration of a quorum.
type quorumTrial struct {
	clients        int
	faults, losses uint8
	depth          int
}

func (tr quorumTrial) model(tb testing.TB, l *library, edits []edit, workers int, flaw flaw) *quorumModel {
	tb.Helper()
	m := &quorumModel{
		quorumTrial: tr, atlas: newAtlas(quorumGrammar{}), servers: newServers(tb, workers), flaw: flaw, calls: map[quorumCall]quorumReply{},
	}
	for i, name := range quorumScripts {
		m.scripts[i] = l.load(name, edits)
	}
	return m
}

func runOf(n int64) string { return fmt.Sprintf("%x", n) }

func (m *quorumModel) start() quorumWorld {
	var s quorumWorld
	first := quorum.List{Number: 1, Size: quorumServers, Version: 2, Servers: []string{"a", "b", "c"}}
	m.listID(first) // 0
	for i := range s.world {
		member := key{name: quorumMarker, kind: 'h', pairs: []pair{
			{"after", strconv.FormatInt(base-1, 10)},
			{"id", first.Servers[i]},
			{"list", first.Name()},
			{"longest", strconv.Itoa(quorumTTL * 1000)},
			{"run", runOf(1)},
			{"servers", first.Text()},
			{"top", strconv.FormatInt(firstToken, 10)},
		}}
		s.world[i] = m.atlas.id(world{member, runKeyOf(1)})
	}
	s.disk = s.world
	if m.clients == 1 {
		s.c[1].phase = quorumDead
	}
	return s
}

func runKeyOf(run int64) key {
	return key{name: "~run", kind: 's', pairs: []pair{{"", runOf(run)}}}
}

// call runs a script at a server.
func (m *quorumModel) call(s *quorumWorld, server int, r quorumRequest, worker int) quorumReply {
	k := quorumCall{s.world[server], r}
	m.mu.Lock()
	reply, known := m.calls[k]
	m.mu.Unlock()
	if !known {
		reply = m.execute(m.atlas.world(k.world), r, worker)
		m.mu.Lock()
		m.calls[k] = reply
		m.mu.Unlock()
	}
	s.world[server] = reply.world
	return reply
}

func (m *quorumModel) execute(w world, r quorumRequest, worker int) (reply quorumReply) {
	me := fmt.Sprintf("nl1:%c.%d/x", 'A'+r.attempt/attemptsEach, r.attempt%attemptsEach)
	tomb, top := fmt.Sprintf("tomb%d", r.attempt), strconv.FormatInt(firstToken+int64(r.token), 10)
	ttl, id := strconv.Itoa(quorumTTL*1000), fmt.Sprintf("r%d", r.id)
	m.mu.Lock()
	list, had := m.lists[r.list], m.lists[r.had]
	m.mu.Unlock()
	keys, argv := []string{"lock", tomb, quorumMarker}, []string{me, ttl, list.Name()}
	switch r.op {
	case quorumAcquire:
	case quorumRenew:
		argv = append(argv, top)
	case quorumLeave:
		keep := "0"
		if r.tomb {
			keep = "300000"
		}
		keys, argv = keys[:2], []string{me, keep, ""}
	case quorumState:
		keys, argv = keys[2:], []string{id}
	case quorumJoin:
		keys, argv = keys[2:], []string{id, had.Name(), list.Name(), list.Text(), idText(r.as), ttl, top, map[bool]string{true: "1", false: "0"}[r.wait]}
	}
	server := m.servers[worker]
	server.runID = w.value("~run", "")
	after, answer, _, err := server.run(m.scripts[r.op], w, base, keys, argv)
	if err != nil {
		return quorumReply{broken: "the script failed: " + err.Error()}
	}
	next := world(after)
	if run, ok := w.get("~run"); ok {
		next = append(next, run)
	}
	for _, k := range next {
		if k.name == "lock" && (k.ttl <= 0 || k.ttl > quorumTTL*1000) {
			return quorumReply{broken: fmt.Sprintf("the lock ends in %d ms", k.ttl)}
		}
	}
	reply.world = m.atlas.id(normal(m.atlas.grammar, next, 0))
	switch answer := answer.(type) {
	case int64:
		reply.code = answer
	case []any:
		if r.op == quorumState {
			reply.state = stateOf(answer)
			return reply
		}
		reply.code, _ = answer[0].(int64)
		if reply.code == quorum.Granted && r.op == quorumAcquire {
			token, _ := strconv.ParseInt(answer[1].(string), 10, 64)
			reply.token = uint8(token - firstToken)
		}
	}
	return reply
}

// stateOf reads an answer of quorum_state, as lockcore does.
func stateOf(answer []any) (s quorum.State) {
	text := func(i int) string { return answer[i].(string) }
	s = quorum.State{Answered: true, Run: text(0), Member: text(1) == "member", ReturnID: text(6), ID: text(7)}
	s.List, s.Former = quorum.ReadList(text(2), text(8)), strings.Fields(text(9))
	s.WaitLeft, _ = strconv.ParseInt(text(3), 10, 64)
	s.MaxTTL, _ = strconv.ParseInt(text(4), 10, 64)
	s.MaxToken, _ = strconv.ParseUint(text(5), 10, 64)
	return s
}

// The fates of a request.
const (
	answeredNow = iota
	unreachable // it does not arrive
	unanswered  // it is executed, and the answer is lost
	arrivesLate
	fates
)

// broadcast sends a request to all servers, with every combination of fates that the faults allow.
func (m *quorumModel) broadcast(s quorumWorld, worker int, r func(server int) (quorumRequest, bool), then func(to quorumWorld, replies [quorumServers]*quorumReply, fate [quorumServers]int, broken string)) {
	var fate [quorumServers]int
	for code := range fates * fates * fates {
		fate[0], fate[1], fate[2] = code%fates, code/fates%fates, code/fates/fates
		to, cost, free := s, uint8(0), 1
		var replies [quorumServers]*quorumReply
		broken, ok := "", true
		for i, f := range fate {
			request, wanted := r(i)
			if !wanted {
				ok = ok && f == answeredNow
				continue
			}
			switch f {
			case answeredNow, unanswered:
				reply := m.call(&to, i, request, worker)
				if reply.broken != "" {
					broken = reply.broken
				}
				if f == answeredNow {
					replies[i] = &reply
				} else {
					cost++
				}
			case unreachable:
				if free--; free < 0 {
					cost++
				}
			case arrivesLate:
				cost++
				ok = ok && to.add(i, request)
			}
		}
		if ok && s.faults+cost <= m.faults {
			to.faults += cost
			then(to, replies, fate, broken)
		}
	}
}

func (s *quorumWorld) add(server int, r quorumRequest) bool {
	for i := range s.late {
		if s.late[i].at == 0 {
			s.late[i].at, s.late[i].quorumRequest = uint8(server+1), r
			return true
		}
	}
	return false
}

func votesOf(replies [quorumServers]*quorumReply) (votes []quorum.Vote) {
	for i, r := range replies {
		v := quorum.Vote{From: i}
		if r != nil {
			v.Code, v.Token, v.Run, v.Holder = r.code, uint64(r.token), strconv.Itoa(i), "other"
		}
		votes = append(votes, v)
	}
	return votes
}

func (m *quorumModel) tell(s step) string {
	return fmt.Sprintf("%s, client or server %d (%d, or fates %d %d %d)", s.what, s.who, s.detail, s.detail%4, s.detail/4%4, s.detail/16)
}

func (m *quorumModel) show(s quorumWorld) string {
	var b strings.Builder
	for i, c := range s.c {
		fmt.Fprintf(&b, "\n   %c %+v", 'A'+i, c)
	}
	fmt.Fprintf(&b, "\n   late %+v, warden %+v, greatest %d", s.late, s.warden, s.greatest)
	for i, id := range s.world {
		fmt.Fprintf(&b, "\n   server %d%s", i, m.atlas.world(id).String())
	}
	return b.String()
}

func fateCode(f [quorumServers]int) uint8 { return uint8(f[0] + 4*f[1] + 16*f[2]) }

func (m *quorumModel) steps(s quorumWorld, worker int, emitted func(step, quorumWorld, string)) {
	emit := func(what step, to quorumWorld, broken string) { emitted(what, canonicalQuorum(to), broken) }
	for p := range s.c {
		m.clientSteps(s, p, worker, emit)
	}
	to := s
	m.pass(&to)
	emit(step{"1 s passes", 0, 0}, to, "")
	for i, l := range s.late {
		if l.at == 0 {
			continue
		}
		to := s
		to.late[i].at, to.late[i].quorumRequest = 0, quorumRequest{}
		reply := m.call(&to, int(l.at-1), l.quorumRequest, worker)
		emit(step{"a late request arrives", l.at - 1, uint8(l.op)}, to, reply.broken)
	}
	m.serverSteps(s, worker, emit)
	m.wardenSteps(s, worker, emit)
	m.strangerSteps(s, worker, emit)
}

// pass lets a second pass.
func (m *quorumModel) pass(s *quorumWorld) {
	for i := range s.world {
		s.world[i], s.disk[i] = m.atlas.later(s.world[i], 1000), m.atlas.later(s.disk[i], 1000)
	}
	for p := range s.c {
		c := &s.c[p]
		if c.phase == quorumGranted {
			c.age = min(c.age+1, quorumTTL)
		}
		if c.belief > 0 {
			c.belief--
		}
	}
}

func (m *quorumModel) clientSteps(s quorumWorld, p, worker int, emit func(step, quorumWorld, string)) {
	c := s.c[p]
	attempt := uint8(p*attemptsEach) + c.number
	// send broadcasts an acquire or a renewal, and records what is not known of it.
	// Answered by a server of another list, the client asks for the latest one.
	send := func(what string, r quorumRequest, then func(to *quorumWorld, c *quorumClient, votes []quorum.Vote) string) {
		r.attempt, r.list = attempt, c.list
		m.broadcast(s, worker, func(int) (quorumRequest, bool) { return r, true }, func(to quorumWorld, replies [quorumServers]*quorumReply, fate [quorumServers]int, broken string) {
			c := &to.c[p]
			for i, f := range fate {
				if f == unanswered || f == arrivesLate {
					c.unsure |= 1 << i
				}
				c.reached |= 1 << i
			}
			m.adopt(c, replies)
			if broken == "" {
				broken = then(&to, c, votesOf(replies))
			}
			emit(step{what, uint8(p), fateCode(fate)}, to, broken)
		})
	}
	switch c.phase {
	case quorumIdle:
		if c.number == attemptsEach {
			return
		}
		if c.reached != 0 {
			m.leave(s, p, worker, emit)
		}
		send("acquires", quorumRequest{op: quorumAcquire}, func(_ *quorumWorld, c *quorumClient, votes []quorum.Vote) string {
			verdict, token, _ := quorum.Acquire(votes, 0, quorumServers, strconv.FormatUint(uint64(attempt), 10))
			if m.flaw == minorityGrants || m.flaw == firstProposal {
				for _, v := range votes {
					if v.Code == quorum.Granted && (verdict == quorum.Yes || m.flaw == minorityGrants) {
						verdict, token = quorum.Yes, v.Token
					}
				}
			}
			c.phase, c.age, c.token = quorumLeaving, 0, uint8(token)
			switch verdict {
			case quorum.Yes:
				c.phase = quorumGranted
			case quorum.Ahead, quorum.Short: // the same attempt tries again, or stops
				c.phase = quorumIdle
			default:
			}
			return ""
		})
	case quorumGranted:
		m.leaveOrDie(s, p, worker, emit)
		send("confirms", quorumRequest{op: quorumRenew, token: c.token}, func(to *quorumWorld, c *quorumClient, votes []quorum.Vote) string {
			age := c.age
			if m.flaw == lateStart {
				age = 0
			}
			c.age = 0
			if !m.yes(votes) || age >= quorumTTL {
				c.phase = quorumLeaving
				return ""
			}
			c.phase, c.belief = quorumHolding, quorumTTL-age
			if c.token <= to.greatest {
				return fmt.Sprintf("a lease has token %d after %d", c.token, to.greatest)
			}
			to.greatest = c.token
			return ""
		})
	case quorumHolding:
		m.leaveOrDie(s, p, worker, emit)
		if c.belief == 0 {
			return
		}
		send("renews", quorumRequest{op: quorumRenew, token: c.token}, func(_ *quorumWorld, c *quorumClient, votes []quorum.Vote) string {
			switch {
			case m.yes(votes):
				c.belief = quorumTTL
			case quorum.Renew(votes, 0, quorumServers) == quorum.No:
				c.belief, c.phase = 0, quorumLeaving
			}
			return ""
		})
	case quorumLeaving:
		m.leave(s, p, worker, emit)
	case quorumDead:
	}
}

func (m *quorumModel) yes(votes []quorum.Vote) bool {
	if m.flaw == minorityConfirms {
		for _, v := range votes {
			if v.Code == quorum.Granted {
				return true
			}
		}
	}
	return quorum.Renew(votes, 0, quorumServers) == quorum.Yes
}

// leaveOrDie emits the ends of an attempt that was granted.
func (m *quorumModel) leaveOrDie(s quorumWorld, p, worker int, emit func(step, quorumWorld, string)) {
	m.leave(s, p, worker, emit)
	to := s
	to.c[p] = quorumClient{phase: quorumDead}
	if s.c[1-p].phase != quorumDead {
		emit(step{"dies", uint8(p), 0}, to, "")
	}
}

// leave emits the releases.
func (m *quorumModel) leave(s quorumWorld, p, worker int, emit func(step, quorumWorld, string)) {
	c := s.c[p]
	attempt := uint8(p*attemptsEach) + c.number
	s.c[p] = quorumClient{number: c.number + 1, list: c.list}
	m.broadcast(s, worker, func(server int) (quorumRequest, bool) {
		return quorumRequest{op: quorumLeave, attempt: attempt, tomb: c.unsure&(1<<server) != 0}, c.reached&(1<<server) != 0
	}, func(to quorumWorld, _ [quorumServers]*quorumReply, fate [quorumServers]int, broken string) {
		emit(step{"leaves", uint8(p), fateCode(fate)}, to, broken)
	})
}

// grants reports whether a server is a member and does not wait.
func (m *quorumModel) grants(id worldID) bool {
	w := m.atlas.world(id)
	after, err := strconv.ParseInt(w.value(quorumMarker, "after"), 10, 64)
	return err == nil && after <= base && w.value(quorumMarker, "run") == w.value("~run", "")
}

func (m *quorumModel) serverSteps(s quorumWorld, _ int, emit func(step, quorumWorld, string)) {
	if s.losses == m.losses {
		return
	}
	for i := range s.world {
		others := true
		for j := range s.world {
			others = others && (j == i || m.grants(s.world[j]))
		}
		id := m.atlas.world(s.world[i]).value(quorumMarker, "id")
		if !others || id == "a" || id == "b" && s.losses == 0 {
			continue // more than a minority would lose its data within one TTL, or these are alike
		}
		lose := func(what string, w world) {
			to := s
			to.losses++
			to.world[i] = m.atlas.id(w)
			emit(step{what, uint8(i), 0}, to, "")
		}
		now, _ := m.atlas.world(s.world[i]).get("~run")
		run, _ := strconv.ParseInt(now.pairs[0].value, 16, 64)
		lose("is flushed", world{now})
		lose("restarts empty", world{runKeyOf(run + 1)})
		if s.disk[i] != s.world[i] {
			lose("restarts with an old disk", m.atlas.world(s.disk[i]).with(key{name: "~run"}).with(runKeyOf(run+1)))
			to := s
			to.disk[i] = s.world[i]
			emit(step{"saves its data", uint8(i), 0}, to, "")
		}
	}
}

// wardenSteps emits the two halves of an examination.
func (m *quorumModel) wardenSteps(s quorumWorld, worker int, emit func(step, quorumWorld, string)) {
	all := true
	for _, id := range s.world {
		w := m.atlas.world(id)
		all = all && w.value(quorumMarker, "run") == w.value("~run", "") &&
			w.value(quorumMarker, "list") == m.atlas.world(s.world[0]).value(quorumMarker, "list")
	}
	if all && !s.warden.began {
		return // nobody examines the servers
	}
	ids := m.freshIDs(s)
	ask := func(server int) (quorumRequest, bool) { return quorumRequest{op: quorumState, id: ids[server]}, true }
	m.broadcast(s, worker, ask, func(to quorumWorld, replies [quorumServers]*quorumReply, fate [quorumServers]int, broken string) {
		for _, f := range fate {
			if f > unreachable {
				return // the same as unreachable
			}
		}
		states := make([]quorum.State, quorumServers)
		for i, r := range replies {
			if r != nil {
				states[i] = r.state
				states[i].Run = fmt.Sprint(i, r.state.Run) // each server has its own
			}
		}
		if !s.warden.began {
			to.warden.began = true
			for i, st := range states {
				to.warden.returns[i] = idOf(st.ReturnID)
			}
			emit(step{"the servers are examined", 0, fateCode(fate)}, to, broken)
			return
		}
		p := quorum.Next(states, 1, quorumTTL*1000, heard)
		first := make([]quorum.State, quorumServers)
		for i, r := range s.warden.returns {
			if r > 0 {
				first[i] = quorum.State{Answered: true, ReturnID: idText(r)}
			}
		}
		to.warden.began, to.warden.returns = false, [quorumServers]uint8{}
		switch {
		case m.flaw == oneReader:
			oneReaderPlan(&p, states)
		case p.Do == quorum.Form || p.Do == quorum.Replaced || p.Do == quorum.Differs || p.Do == quorum.Outdated:
			broken = cmp.Or(broken, fmt.Sprintf("a minority has lost its data, and the plan is %d", p.Do))
		}
		p.First, p.Then = quorum.Confirmed(first, states, p.First), quorum.Confirmed(first, states, p.Then)
		detail := fateCode(fate)
		if p.List.Number == 0 {
			emit(step{"servers are let in", 0, detail}, to, broken)
			return
		}
		list := m.listID(p.List)
		for client := -1; client < quorumClients; client++ { // the one that did this
			to := to
			if client >= 0 {
				if to.c[client].phase == quorumDead || to.c[client].list == list {
					continue // the same as none
				}
				to.c[client].list = list
			}
			m.letIn(to, states, p, list, worker, func(next quorumWorld, again string) {
				emit(step{"servers are let in", 0, detail}, next, cmp.Or(broken, again))
			})
		}
	})
}

// heard are the ids that the servers had when a client that has heard all of them did so. With three servers, none
// of them gets into a list, as two must answer, and a third one is let in.
var heard = []string{"a", "b", "c"}

// strangerSteps emits the whole examinations of clients that have heard no member yet. One has the right servers, and
// the others an empty one in the place of each of them. They let nobody in who is not in the list.
func (m *quorumModel) strangerSteps(s quorumWorld, worker int, emit func(step, quorumWorld, string)) {
	known := make([]string, quorumServers)
	if m.flaw == strangerAdmits {
		known = heard
	}
	ids := m.freshIDs(s)
	for place := range quorumServers + 1 {
		to, states := s, make([]quorum.State, quorumServers)
		members := map[string]bool{}
		for i := range states {
			if i == place {
				states[i] = quorum.State{Answered: true, Run: "other", ReturnID: "other"}
				continue
			}
			states[i] = m.call(&to, i, quorumRequest{op: quorumState, id: ids[i]}, worker).state
			states[i].Run = fmt.Sprint(i, states[i].Run)
			for _, id := range states[i].List.Servers {
				members[id] = true
			}
		}
		p := quorum.Next(states, 1, quorumTTL*1000, known)
		what, broken := "a client that knows no server examines all", ""
		for _, id := range p.List.Servers {
			if !members[id] {
				broken = fmt.Sprintf("a client that knows no server lets in %q: %+v", id, p)
			}
		}
		if broken != "" {
			emit(step{what, uint8(place), 0}, s, broken)
			return
		}
		if p.List.Number > 0 && len(p.First)+len(p.Then) > 0 && !slices.Contains(append(slices.Clone(p.First), p.Then...), place) {
			m.letIn(to, states, p, m.listID(p.List), worker, func(next quorumWorld, broken string) {
				emit(step{what, uint8(place), 0}, next, broken)
			})
		}
	}
}

// letIn emits the requests of a plan: all arrive, or some are late. It ends as quorumTopology.admit does.
func (m *quorumModel) letIn(s quorumWorld, states []quorum.State, p quorum.Plan, list uint8, worker int, emit func(quorumWorld, string)) {
	if p.Do != quorum.Join && p.Do != quorum.Raise {
		emit(s, "")
		return
	}
	all := append(slices.Clone(p.First), p.Then...)
	for late := range 1 << len(all) {
		next, broken, ok := s, "", true
		var done []int
		for n, i := range all {
			if n == len(p.First) && !p.Enough(done) {
				ok = ok && late>>n == 0 // counted once
				break
			}
			r := quorumRequest{op: quorumJoin, list: list, had: m.listID(states[i].List), id: idOf(states[i].ReturnID), wait: p.Waits[i], as: idOf(p.IDs[i]), token: uint8(p.MaxToken - uint64(firstToken))}
			if late>>n&1 == 1 {
				next.faults++
				ok = ok && next.faults <= m.faults && next.add(i, r)
				continue
			}
			reply := m.call(&next, i, r, worker)
			broken = cmp.Or(broken, reply.broken)
			if reply.code == 1 {
				done = append(done, i)
			}
		}
		if ok {
			emit(next, broken)
		}
	}
}

// adopt gives a client the latest list that it can learn, when a server has refused its own.
func (m *quorumModel) adopt(c *quorumClient, replies [quorumServers]*quorumReply) {
	if !slices.ContainsFunc(replies[:], func(r *quorumReply) bool { return r != nil && r.code == quorum.OtherList }) {
		return
	}
	m.mu.Lock()
	latest := m.lists[c.list]
	m.mu.Unlock()
	for _, r := range replies {
		if r == nil {
			continue
		}
		w := m.atlas.world(r.world)
		if l := quorum.ReadList(w.value(quorumMarker, "list"), w.value(quorumMarker, "servers")); l.Version > latest.Version {
			latest = l
		}
	}
	c.list = m.listID(latest)
}

// listID returns the index of a list.
func (m *quorumModel) listID(l quorum.List) uint8 {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.lists, func(o quorum.List) bool { return o.Name() == l.Name() })
	if i < 0 {
		i = len(m.lists)
		m.lists = append(m.lists, l)
	}
	if i > 255 {
		panic("too many lists")
	}
	return uint8(i)
}

// freshIDs returns numbers of a return that occur nowhere, one for each server.
func (m *quorumModel) freshIDs(s quorumWorld) (ids [quorumServers]uint8) {
	used := map[uint8]bool{0: true}
	for i := range s.world {
		for _, id := range []worldID{s.world[i], s.disk[i]} {
			w := m.atlas.world(id)
			names := append(strings.Fields(w.value(quorumMarker, "servers")), w.value(quorumMarker, "return"), w.value(quorumMarker, "id"))
			for _, name := range names {
				used[idOf(name)] = true
			}
		}
		used[s.warden.returns[i]] = true
	}
	for _, l := range s.late {
		used[l.id], used[l.as] = true, true
	}
	for _, c := range s.c {
		m.mu.Lock()
		for _, name := range m.lists[c.list].Servers {
			used[idOf(name)] = true
		}
		m.mu.Unlock()
	}
	id := uint8(0)
	for i := range ids {
		for used[id] {
			id++
		}
		ids[i], used[id] = id, true
	}
	return ids
}

// canonicalQuorum returns one of the states that differ only in the order of servers and of late
// requests.
func canonicalQuorum(s quorumWorld) quorumWorld {
	bits := func(i int) (b int64) {
		for _, c := range s.c {
			b = b<<2 | int64(c.unsure>>i&1)<<1 | int64(c.reached>>i&1)
		}
		b = b<<8 | int64(s.warden.returns[i])
		for _, l := range s.late {
			if int(l.at) == i+1 {
				b += int64(l.op)<<20 + int64(l.attempt)<<24 + int64(l.token)<<32 + int64(l.list)<<40 + 1<<50
			}
		}
		return b
	}
	order := []int{0, 1, 2}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.world[a], s.world[b]), cmp.Compare(s.disk[a], s.disk[b]), cmp.Compare(bits(a), bits(b)))
	})
	to := s
	for n, i := range order {
		to.world[n], to.disk[n], to.warden.returns[n] = s.world[i], s.disk[i], s.warden.returns[i]
		for p := range s.c {
			set := func(mask *uint8, old uint8) { *mask = *mask&^(1<<n) | old>>i&1<<n }
			set(&to.c[p].unsure, s.c[p].unsure)
			set(&to.c[p].reached, s.c[p].reached)
		}
		for k, l := range s.late {
			if int(l.at) == i+1 {
				to.late[k].at = uint8(n + 1)
			}
		}
	}
	slices.SortFunc(to.late[:], func(a, b quorumLate) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.op, b.op), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.token, b.token), cmp.Compare(a.list, b.list), cmp.Compare(a.had, b.had), cmp.Compare(a.id, b.id), cmp.Compare(a.as, b.as))
	})
	return to
}

// A quorumLate is a request that arrives later.
type quorumLate struct {
	at uint8 // server + 1; 0: none
	quorumRequest
}

// oneReaderPlan makes a plan that of a client with the flaw oneReader.
func oneReaderPlan(p *quorum.Plan, states []quorum.State) {
	reader := slices.IndexFunc(states, func(st quorum.State) bool { return st.Answered && st.Member })
	if reader < 0 {
		return
	}
	*p = quorum.Plan{Do: quorum.Join, List: states[reader].List, MaxToken: states[reader].MaxToken, Waits: []bool{true, true, true}}
	for i, st := range states {
		p.IDs = append(p.IDs, cmp.Or(st.ID, st.ReturnID))
		if st.Answered && !st.Member {
			p.Then = append(p.Then, i)
		}
	}
}

// idText returns an id of a server: it is a letter at first, and later the number of its return.
func idText(id uint8) string {
	if id >= 'a' {
		return string(rune(id))
	}
	return fmt.Sprintf("r%d", id)
}

// idOf returns the id of a text, 0: none.
func idOf(text string) uint8 {
	if n, numbered := strings.CutPrefix(text, "r"); numbered {
		id, _ := strconv.Atoi(n)
		return uint8(id)
	}
	if text == "" {
		return 0
	}
	return text[0]
}

// fault returns a broken promise. It also checks that the lock can be acquired soon without
// further faults.
func (m *quorumModel) fault(s quorumWorld, _ int) string {
	if s.c[0].belief > 0 && s.c[1].belief > 0 {
		return "both clients hold a valid lease"
	}
	return ""
}

// The explorations of a quorum, from the one that detects most mutants.
var quorumTrials = []quorumTrial{
	{2, 0, 0, 9},
	{1, 0, 2, 9},
	{2, 1, 0, 6},
	{1, 1, 1, 7},
	{2, 0, 1, 7},
	{1, 2, 0, 6},
}

func TestQuorum(t *testing.T) {
	l := newLibrary(t)
	workers := runtime.GOMAXPROCS(0)
	for _, tr := range quorumTrials {
		t.Run(fmt.Sprintf("%d clients, %d faults, %d losses of data", tr.clients, tr.faults, tr.losses), func(t *testing.T) {
			m := tr.model(t, l, nil, workers, noFlaw)
			f := search(m, tr.depth+deeper(t), 0, workers)
			if f.broken != "" {
				t.Fatal(f)
			}
			servers.Count(t, "a quorum of 3, %d clients: %v, with up to %d faults and %d losses of data", tr.clients, f, tr.faults, tr.losses)
			t.Log("new states by depth: ", f.atDepth, ", in ", f.took.Round(time.Millisecond))
		})
	}
}
