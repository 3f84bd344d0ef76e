package explorer

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// tickModel models replicas that claim the ticks of one job with the real scripts. Each replica
// follows the rules of the ledger (claiming.go, claim.go).
type tickModel struct {
	tickRules
	atlas     *atlas
	servers   []*redisServer
	scripts   map[string]script
	processes int
	faults    uint8
	deaths    uint8

	mu    sync.Mutex
	ends  map[tickState]uint8
	worst uint8
}

type tickState struct {
	world   worldID
	c       [3]tickClient
	late    [2]lateTick
	started [2]uint8 // runs of each tick whose work has begun
	faults  uint8
	deaths  uint8
}

type lateTick struct {
	op      tickOp
	attempt attemptID
	tick    uint8
	known   uint8
}

// A tickClient is one replica: its current claim or run, and one that it releases in the
// background.
type tickClient struct {
	phase       phase // idle, asking (to claim), holding (running), spent, dead
	slot        uint8
	tick        uint8
	known       uint8 // the newest tick that it knows to be accounted for; 0: none
	transit     transit
	age         uint8
	again       uint8
	open        bool // attempt.unanswered
	mayBeStored bool // attempt.mayBeStored
	belief      uint8
	back        tickOp // abandon or stop
	backAt      uint8  // slot
	backFor     uint8  // tick
}

// lastSecond is the last second of the clock.
const lastSecond = 9

const (
	tickStepClaim uint8 = iota
	tickStepClaimUnanswered
	tickStepClaimSlow
	tickStepArrives
	tickStepTimeout
	tickStepGiveUp
	tickStepLooks
	tickStepRenew
	tickStepRenewLate
	tickStepComplete
	tickStepCompleteUnanswered
	tickStepCompleteLate
	tickStepAbandon
	tickStepWalkAway
	tickStepBack
	tickStepBackUnanswered
	tickStepBackStops
	tickStepDie
	tickStepLate
	tickStepPause
	tickStepTime
)

var tickStepNames = [...]string{
	"claims", "claims, and the answer is lost", "claims, and the request is slow", "reaches the server late",
	"stops waiting for the answer", "abandons the attempt", "reads the status of the job", "renews", "sends a renewal that is slow", "completes",
	"completes, and the answer is lost", "completes, and the request is slow", "abandons its run", "lets its lost run be",
	"abandons in the background", "abandons in the background, and the answer is lost", "stops trying to abandon", "dies", "had sent a request that arrives now",
}

func (m *tickModel) tell(s step) string {
	switch s.what {
	case tickStepTime:
		return fmt.Sprintf("%d s pass", s.detail)
	case tickStepPause:
		return "another client: " + tickOps[s.detail]
	case tickStepLate:
		return fmt.Sprintf("%c %s (%s)", 'A'+s.who, tickStepNames[s.what], tickOps[s.detail])
	}
	return fmt.Sprintf("%c %s (tick %d)", 'A'+s.who, tickStepNames[s.what], s.detail+1)
}

func (m *tickModel) show(s tickState) string {
	var b strings.Builder
	for p := range m.processes {
		c := s.c[p]
		fmt.Fprintf(&b, "\n   %c %s %v, tick %d, knows %d, belief %d, behind: %s", 'A'+p, phases[c.phase], attemptOf(p, int(c.slot)), c.tick+1, c.known, c.belief, tickOps[c.back])
	}
	for _, l := range s.late {
		if l.op != tickNone {
			fmt.Fprintf(&b, "\n   late: %s %v, tick %d", tickOps[l.op], l.attempt, l.tick+1)
		}
	}
	return b.String() + m.atlas.world(s.world).String()
}

func (m *tickModel) start() tickState {
	s := tickState{world: m.atlas.id(world{
		{name: jobStem + "job", kind: 'h', ttl: 2592000000, pairs: []pair{{"def", "d"}, {"last", knownText(0)}, {"v", "1"}}},
		{name: "~clock", kind: 'h', pairs: []pair{{"n", "0"}}},
	})}
	for p := m.processes; p < 3; p++ {
		s.c[p].phase = dead
	}
	return s
}

func (m *tickModel) call(s *tickState, worker int, c tickCall) outcome {
	sc := m.scripts[m.scriptOf(c.op)]
	out := m.atlas.run(runKey{s.world, int32(sc.id), c.code()}, func(w world) (world, outcome) {
		keys, argv := m.request(w, c)
		server := m.servers[worker]
		server.receivers = func(string) int { return 0 }
		after, reply, _, err := server.run(sc, w, m.clock(w), keys, argv)
		if err != nil {
			return w, outcome{broken: "the script failed: " + err.Error()}
		}
		return m.watch(w, c, after, reply)
	})
	s.world = out.world
	return out
}

func (s *tickState) referenced(a attemptID) bool {
	c := &s.c[a.process()]
	if c.phase != dead && (c.phase != idle && c.slot == a.slot() || c.back != tickNone && c.backAt == a.slot()) {
		return true
	}
	for _, l := range s.late {
		if l.op != tickNone && l.attempt == a {
			return true
		}
	}
	return false
}

func (m *tickModel) canonical(s tickState) tickState {
	if l := s.late; l[0].op < l[1].op || l[0].op == l[1].op && l[0].attempt < l[1].attempt {
		s.late[0], s.late[1] = l[1], l[0]
	}
	f, gone := m.atlas.fact(s.world), int32(0)
	for a := range attemptID(m.processes * slots) {
		if !s.referenced(a) && f.present&(1<<a) == 0 {
			gone |= 1 << a
		}
	}
	if gone != 0 {
		s.world = m.atlas.change(s.world, -gone, func(w world) world {
			for a := range attempts {
				if gone&(1<<a) != 0 {
					w = m.forget(w, a)
				}
			}
			return normal(m, w, 0)
		})
	}
	return s
}

// abandon models Client.abandon for a claim: the claim is abandoned in the background.
func (c *tickClient) abandon() bool {
	if c.mayBeStored {
		if c.back != tickNone {
			return false
		}
		c.back, c.backAt, c.backFor = tickAbandon, c.slot, c.tick
	}
	c.removeAttempt()
	return true
}

func (c *tickClient) removeAttempt() {
	*c = tickClient{known: c.known, back: c.back, backAt: c.backAt, backFor: c.backFor}
}

// deliver models Ledger.Claim's handling of an answer.
func (m *tickModel) deliver(s *tickState, p int, code int8) (ok bool, broken string) {
	c := &s.c[p]
	age := c.age
	c.transit, c.age = nowhere, 0
	if code != 1 {
		return c.abandon(), ""
	}
	c.mayBeStored = true
	if age >= ttlTicks(p) {
		// An answer without validity left never starts work: the request is repeated, three times.
		if c.again++; c.again == 3 {
			return c.abandon(), ""
		}
		return true, ""
	}
	c.phase, c.belief = holding, ttlTicks(p)-age
	if s.started[c.tick]++; int(s.started[c.tick]) > m.most {
		return true, fmt.Sprintf("the work of tick %d has begun %d times", c.tick+1, s.started[c.tick])
	}
	return true, ""
}

func (s *tickState) addLate(l lateTick) bool {
	for i := range s.late {
		if s.late[i].op == tickNone {
			s.late[i] = l
			return true
		}
	}
	return false
}

func (m *tickModel) steps(s tickState, worker int, emit func(step, tickState, string)) {
	f := m.atlas.fact(s.world)
	mayFail := s.faults < m.faults
	failing := s
	failing.faults++
	for p := range m.processes {
		c, who := s.c[p], uint8(p)
		if c.phase == dead {
			continue
		}
		me := attemptOf(p, int(c.slot))
		to := func(from tickState, what uint8, change func(s *tickState, c *tickClient) (bool, string)) {
			detail := from.c[p].tick
			if ok, broken := change(&from, &from.c[p]); ok {
				emit(step{what, who, detail}, m.canonical(from), broken)
			}
		}
		// run sends a request that arrives.
		run := func(from tickState, what uint8, call tickCall, answer func(s *tickState, c *tickClient, code int8) (bool, string)) {
			to(from, what, func(s *tickState, c *tickClient) (bool, string) {
				out := m.call(s, worker, call)
				if out.broken != "" {
					return true, out.broken
				}
				return answer(s, c, out.code)
			})
		}
		claim := func(from tickState) {
			fc := &from.c[p]
			fc.phase, fc.transit, fc.age = asking, nowhere, 0
			call := tickCall{tickClaim, attemptOf(p, int(fc.slot)), fc.tick, fc.known}
			run(from, tickStepClaim, call, func(s *tickState, _ *tickClient, code int8) (bool, string) { return m.deliver(s, p, code) })
			if mayFail {
				lost := from
				lost.faults++
				run(lost, tickStepClaimUnanswered, call, func(_ *tickState, c *tickClient, _ int8) (bool, string) {
					c.open, c.mayBeStored = true, true
					return true, ""
				})
				to(lost, tickStepClaimSlow, func(_ *tickState, c *tickClient) (bool, string) { c.transit = sent; return true, "" })
			}
		}
		switch c.phase {
		case idle:
			if known := knownOf(f.last); known != c.known {
				to(s, tickStepLooks, func(_ *tickState, c *tickClient) (bool, string) { c.known = known; return true, "" })
			}
			for slot := range slots {
				if a := attemptOf(p, slot); s.referenced(a) || f.present&(1<<a) != 0 {
					continue
				}
				for tick := range uint8(2) {
					from := s
					from.c[p].slot, from.c[p].tick = uint8(slot), tick
					claim(from)
				}
				break
			}
		case asking:
			if c.transit == nowhere {
				claim(s)
				to(s, tickStepGiveUp, func(_ *tickState, c *tickClient) (bool, string) { return c.abandon(), "" })
				break
			}
			run(s, tickStepArrives, tickCall{tickClaim, me, c.tick, c.known}, func(s *tickState, _ *tickClient, code int8) (bool, string) { return m.deliver(s, p, code) })
			to(s, tickStepTimeout, func(s *tickState, c *tickClient) (bool, string) {
				c.open, c.mayBeStored, c.transit, c.age = true, true, nowhere, 0
				return s.addLate(lateTick{tickClaim, me, c.tick, c.known}), ""
			})
		case holding, spent:
			if c.phase == holding {
				run(s, tickStepRenew, tickCall{tickRenew, me, c.tick, 0}, func(_ *tickState, c *tickClient, code int8) (bool, string) {
					if c.belief = ttlTicks(p); code == 0 {
						c.removeAttempt()
					}
					return true, ""
				})
				if mayFail {
					to(failing, tickStepRenewLate, func(s *tickState, c *tickClient) (bool, string) {
						return s.addLate(lateTick{tickRenew, me, c.tick, 0}), ""
					})
				}
			} else {
				to(s, tickStepWalkAway, func(_ *tickState, c *tickClient) (bool, string) { c.removeAttempt(); return true, "" })
			}
			done := tickCall{tickComplete, me, c.tick, 0}
			run(s, tickStepComplete, done, func(_ *tickState, c *tickClient, _ int8) (bool, string) { c.removeAttempt(); return true, "" })
			if mayFail {
				// The caller of Complete has finished its work: it only repeats the request.
				run(failing, tickStepCompleteUnanswered, done, func(_ *tickState, c *tickClient, _ int8) (bool, string) {
					c.belief, c.phase = 0, spent
					return true, ""
				})
				to(failing, tickStepCompleteLate, func(s *tickState, c *tickClient) (bool, string) {
					c.belief, c.phase = 0, spent
					return s.addLate(lateTick{tickComplete, me, c.tick, 0}), ""
				})
			}
			to(s, tickStepAbandon, func(_ *tickState, c *tickClient) (bool, string) {
				if c.back != tickNone {
					return false, ""
				}
				c.back, c.backAt, c.backFor = tickStop, c.slot, c.tick
				c.removeAttempt()
				return true, ""
			})
		case waiting, dead:
		}
		if c.back != tickNone {
			call := tickCall{c.back, attemptOf(p, int(c.backAt)), c.backFor, 0}
			run(s, tickStepBack, call, func(_ *tickState, c *tickClient, _ int8) (bool, string) {
				c.back, c.backAt, c.backFor = tickNone, 0, 0
				return true, ""
			})
			if mayFail {
				run(failing, tickStepBackUnanswered, call, func(*tickState, *tickClient, int8) (bool, string) { return true, "" })
				to(failing, tickStepBackStops, func(_ *tickState, c *tickClient) (bool, string) {
					c.back, c.backAt, c.backFor = tickNone, 0, 0
					return true, ""
				})
			}
		}
		if s.deaths < m.deaths {
			to(s, tickStepDie, func(s *tickState, c *tickClient) (bool, string) {
				s.deaths++
				ok := c.transit != sent || s.addLate(lateTick{tickClaim, me, c.tick, c.known})
				*c = tickClient{phase: dead}
				return ok, ""
			})
		}
	}
	for i, l := range s.late {
		if l.op == tickNone {
			continue
		}
		from := s
		from.late[i] = lateTick{}
		out := m.call(&from, worker, tickCall(l))
		emit(step{tickStepLate, uint8(l.attempt.process()), uint8(l.op)}, m.canonical(from), out.broken)
	}
	if op := tickPause; mayFail || f.paused {
		from := s
		if f.paused {
			op = tickResume
		} else {
			from.faults++
		}
		out := m.call(&from, worker, tickCall{op: op})
		emit(step{tickStepPause, 0, uint8(op)}, m.canonical(from), out.broken)
	}
	if (f.clock-base)/tick < lastSecond {
		emit(step{tickStepTime, 0, 1}, m.later(s), "")
	}
}

func knownOf(last string) uint8 {
	for known := range uint8(3) {
		if knownText(known) == last {
			return known
		}
	}
	panic("the newest accounted tick is none of the job's: " + last)
}

func (m *tickModel) later(s tickState) tickState {
	s.world = m.atlas.change(s.world, 1, func(w world) world {
		n := (m.clock(w)-base)/tick + 1
		return normal(m, w.set("~clock", "n", strconv.FormatInt(n, 10)), 0)
	})
	for p := range s.c {
		c := &s.c[p]
		if c.phase == asking && c.transit != nowhere {
			c.age = min(c.age+1, ttlTicks(p))
		}
		if c.phase == holding {
			if c.belief--; c.belief == 0 {
				c.phase = spent
			}
		}
	}
	return s
}

// fault: there are no two valid runs, and all due ticks end without further faults.
func (m *tickModel) fault(s tickState, worker int) string {
	f := m.atlas.fact(s.world)
	for p, c := range s.c {
		if c.belief == 0 {
			continue
		}
		me := attemptOf(p, int(c.slot))
		for q, o := range s.c[:p] {
			if o.belief > 0 && (o.tick == c.tick || !m.overlap) {
				return fmt.Sprintf("%c and %c both run", 'A'+q, 'A'+p)
			}
		}
		if f.held[c.tick] == int8(me) && f.left[c.tick] <= int64(c.belief-1)*tick {
			return fmt.Sprintf("%v takes its run of tick %d as valid for %d s, but the server does not", me, c.tick+1, c.belief)
		}
	}
	return m.endsWell(s, worker)
}

const tickPatience = 14

func (m *tickModel) endsWell(s tickState, worker int) string {
	m.mu.Lock()
	_, known := m.ends[s]
	m.mu.Unlock()
	if known {
		return ""
	}
	first, rounds := s, uint8(0)
	for ; ; rounds++ {
		over, broken := m.round(&s, worker)
		if broken != "" {
			return "with no more faults: " + broken
		}
		if over {
			break
		}
		if rounds == tickPatience {
			return fmt.Sprintf("a tick is open or not claimed after %d s although no fault comes any more:%s", rounds, m.show(s))
		}
		s = m.canonical(m.later(s))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends[first] = rounds
	m.worst = max(m.worst, rounds)
	return ""
}

// round runs all actions that are due within one second.
func (m *tickModel) round(s *tickState, worker int) (over bool, broken string) {
	call := func(c tickCall) int8 {
		out := m.call(s, worker, c)
		if broken == "" {
			broken = out.broken
		}
		return out.code
	}
	if m.atlas.fact(s.world).paused {
		call(tickCall{op: tickResume})
	}
	for i, l := range s.late {
		if l.op != tickNone {
			s.late[i] = lateTick{}
			call(tickCall(l))
		}
	}
	for p := range m.processes {
		c := &s.c[p]
		if c.phase == dead {
			continue
		}
		if c.back != tickNone {
			call(tickCall{c.back, attemptOf(p, int(c.backAt)), c.backFor, 0})
			c.back, c.backAt, c.backFor = tickNone, 0, 0
		}
		for range 4 {
			if broken != "" {
				return false, broken
			}
			me := attemptOf(p, int(c.slot))
			switch c.phase {
			case asking:
				ok, b := m.deliver(s, p, call(tickCall{tickClaim, me, c.tick, c.known}))
				if broken == "" {
					broken = b
				}
				if !ok {
					c.removeAttempt()
				}
			case holding, spent:
				call(tickCall{tickComplete, me, c.tick, 0})
				c.removeAttempt()
			case idle, waiting, dead:
			}
			if c.back != tickNone {
				call(tickCall{c.back, attemptOf(p, int(c.backAt)), c.backFor, 0})
				c.back, c.backAt, c.backFor = tickNone, 0, 0
			}
		}
		if m.old && p == 1 {
			continue
		}
		// Runner: the earliest open tick, or else the next due one.
		*s = m.canonical(*s)
		c = &s.c[p]
		f := m.atlas.fact(s.world)
		c.known = knownOf(f.last)
		next := int(c.known)
		for i := range f.open {
			if f.open[i] && i < next {
				next = i
			}
		}
		if next == len(dueTicks) || dueTicks[next] > f.clock {
			continue
		}
		for slot := range slots {
			if f.present&(1<<attemptOf(p, slot)) == 0 {
				c.phase, c.slot, c.tick = asking, uint8(slot), uint8(next)
				break
			}
		}
	}
	over = true
	for i := range dueTicks {
		f := m.atlas.fact(s.world)
		over = over && !f.open[i]
	}
	over = over && knownOf(m.atlas.fact(s.world).last) == 2
	for p := range m.processes {
		over = over && (s.c[p].phase == idle || s.c[p].phase == dead)
	}
	return over, broken
}
