package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/internal/quorum"
)

const simTTL = 4

// A simServer does what the scripts of lockcore do, for one lock.
type simServer struct {
	run, joined   int
	id            string
	list          quorum.List
	former        []string
	after         int
	returns, back string // number of the return, and the run of it
	holder        int
	until         int
}

type simRequest struct {
	server  int
	returns string
	had     string // name of the list that the server had
	list    quorum.List
	id      string
}

// A simClient examines its servers like a Client, and acquires and renews like a mutex.
type simClient struct {
	servers []int
	name    string
	known   []string
	valid   int // until then
	first   []quorum.State
	plan    quorum.Plan
	states  []quorum.State
}

type sim struct {
	*rand.Rand
	now, number int
	servers     []simServer
	clients     []*simClient
	late        []simRequest
	losses      int  // how often a server may still lose its data
	hasty       bool // a flaw: blank servers are let in at once
}

func (s *sim) state(i int) quorum.State {
	v := &s.servers[i]
	if member := v.joined == v.run; !member && v.back != strconv.Itoa(v.run) {
		s.number++
		v.returns, v.back = fmt.Sprintf("r%d", s.number), strconv.Itoa(v.run)
	}
	return quorum.State{
		Answered: true, Run: fmt.Sprint(i, "/", v.run), ID: v.id, Member: v.joined == v.run, List: v.list,
		MaxTTL: simTTL, ReturnID: v.returns, Former: v.former,
	}
}

func (s *sim) join(r simRequest) bool {
	v := &s.servers[r.server]
	if had := v.list.Name(); had != r.had && had != r.list.Name() {
		return false
	}
	if v.joined != v.run && (v.returns != r.returns || v.back != strconv.Itoa(v.run)) {
		return false
	}
	if v.list.Name() != r.list.Name() {
		v.former = v.list.Servers
	}
	if v.joined == v.run {
		if !v.list.InForce() && v.list.Name() != r.list.Name() {
			v.after = s.now + simTTL
		}
		v.list = r.list
		return true
	}
	v.joined, v.id, v.list, v.after = v.run, r.id, r.list, s.now+simTTL
	v.returns, v.back = "", ""
	return true
}

// send sends requests to join: each one arrives, is lost, or arrives later.
func (s *sim) send(c *simClient, whom []int) (done []int) {
	for _, n := range whom {
		r := simRequest{c.servers[n], c.states[n].ReturnID, c.states[n].List.Name(), c.plan.List, c.plan.IDs[n]}
		switch s.IntN(6) {
		case 0:
		case 1:
			s.late = append(s.late, r)
		default:
			if s.join(r) {
				done = append(done, n)
			}
		}
	}
	return done
}

func (s *sim) ask(c *simClient) []quorum.State {
	states := make([]quorum.State, len(c.servers))
	away := s.IntN(2 * len(states)) // one is, every second time
	for n, i := range c.servers {
		if n != away {
			states[n] = s.state(i)
		}
	}
	return states
}

// examine does one step of an examination.
func (s *sim) examine(c *simClient) {
	switch {
	case c.first == nil:
		c.first = s.ask(c)
		c.plan = quorum.Next(c.first, 1, simTTL, c.known)
		s.remember(c)
	case c.states == nil:
		states := s.ask(c)
		again := quorum.Next(states, 1, simTTL, c.known)
		if again.Do != c.plan.Do || again.List.Name() != c.plan.List.Name() {
			c.first = nil
			return
		}
		c.plan, c.states = again, states
		s.remember(c)
	default:
		p := c.plan
		if p.Do == quorum.Join || p.Do == quorum.Form || p.Do == quorum.Raise {
			done := s.send(c, quorum.Confirmed(c.first, c.states, p.First))
			if p.Enough(done) || s.hasty {
				s.send(c, quorum.Confirmed(c.first, c.states, p.Then))
			}
		}
		if p.List.InForce() {
			c.name = p.List.Name()
		}
		c.first, c.states = nil, nil
	}
}

func (s *sim) remember(c *simClient) {
	if c.plan.MemberIDs != nil {
		c.known = c.plan.MemberIDs
	}
}

// hold acquires or renews.
func (s *sim) hold(me int) {
	c := s.clients[me]
	renewal := c.valid > s.now
	granted := 0
	for _, i := range c.servers {
		v := &s.servers[i]
		mine := v.holder == me+1 && v.until > s.now
		free := v.until <= s.now && v.joined == v.run && v.after <= s.now
		if v.list.Name() == c.name && (free || mine) && s.IntN(8) > 0 {
			v.holder, v.until = me+1, s.now+simTTL
			granted++
		}
	}
	if granted >= quorum.Majority(len(c.servers)) {
		c.valid = s.now + simTTL
	} else if !renewal {
		for _, i := range c.servers {
			if v := &s.servers[i]; v.holder == me+1 && s.IntN(8) > 0 {
				v.until = s.now
			}
		}
	}
}

// step does anything that may happen next.
func (s *sim) step() {
	me := s.IntN(len(s.clients))
	c := s.clients[me]
	what := s.IntN(10)
	switch {
	case what < 4:
		s.examine(c)
	case what < 7:
		s.hold(me)
	case what == 7:
		s.now++
	case what == 8 && len(s.late) > 0:
		n := s.IntN(len(s.late))
		s.join(s.late[n])
		s.late = slices.Delete(s.late, n, n+1)
	case what == 9 && s.losses > 0 && s.IntN(12) == 0:
		s.lose()
	}
}

// lose empties a server, if all others grant locks.
func (s *sim) lose() {
	i := s.IntN(len(s.servers))
	for j, v := range s.servers {
		if used := v.list.Number > 0 || v.run > 1; j != i && used && (v.joined != v.run || v.after > s.now) {
			return
		}
	}
	s.losses--
	s.servers[i] = simServer{run: s.servers[i].run + 1}
}

// A Client has other servers than another one, under the same number. They share at least one server
// that keeps its data, so that there are never two valid leases. The second Client is refused, it replaces the first one
// at the first start, or it works with the servers of the first one: it never lets another one into a list in force,
// unless it has heard a member at this address, which then moves.
// Mutant: a server without data is let in before a majority has the new version of the list.
func TestOtherServersUnderOneNumber(t *testing.T) {
	t.Parallel()
	held := [2]int{}
	run := func(seed uint64, hasty bool) string {
		s := &sim{Rand: rand.New(rand.NewPCG(seed, 0)), hasty: hasty}
		n := []int{3, 3, 5}[s.IntN(3)]
		shared := 1 + s.IntN(n)
		began := s.IntN(2) == 0 // the first one has, long ago
		moves := began && s.IntN(2) == 0
		if s.servers = slices.Repeat([]simServer{{run: 1}}, 2*n-shared); began && !moves && shared > 1 || shared == n {
			s.losses = 3 // each group has a server with data
		}
		var a, b []int
		for i := range n {
			a, b = append(a, i), append(b, i)
			if i >= shared {
				b[i] = n + i - shared
			}
		}
		s.clients = []*simClient{{servers: a, known: make([]string, n)}, {servers: b, known: make([]string, n)}}
		if began {
			first := quorum.List{Number: 1, Size: n, Version: 2}
			for i := range n {
				first.Servers = append(first.Servers, fmt.Sprint("s", i))
			}
			for i := range n {
				s.servers[i] = simServer{run: 1, joined: 1, id: first.Servers[i], list: first}
			}
		}
		if moves {
			s.clients[1].servers = slices.Clone(a)
		}
		for now := range 150 {
			if s.step(); moves && now == 40 {
				s.clients[1] = &simClient{servers: b, name: s.clients[1].name, known: s.clients[1].known, valid: s.clients[1].valid}
			}
			for me, c := range s.clients {
				if c.valid > s.now {
					held[me]++
				}
			}
			if began && !moves && slices.ContainsFunc(s.servers[n:], func(v simServer) bool { return v.list.Number > 0 }) {
				return fmt.Sprintf("seed %d: another server was let in, of %v and %v: %+v", seed, a, b, s.servers)
			}
			if s.clients[0].valid > s.now && s.clients[1].valid > s.now {
				return fmt.Sprintf("seed %d: both hold the lock of %v and %v: %+v", seed, a, b, s.servers)
			}
		}
		return ""
	}
	for seed := range uint64(3000) {
		if broken := run(seed, false); broken != "" {
			t.Fatal(broken)
		}
	}
	if held[0] == 0 || held[1] == 0 {
		t.Errorf("leases were valid in %v steps", held)
	}
	for seed := range uint64(10_000) {
		if run(seed, true) != "" {
			return
		}
	}
	t.Error("nothing notices that servers without data are let in too early")
}
