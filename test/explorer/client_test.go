package explorer

import (
	"fmt"
	"strings"
)

// lockModel models processes that acquire one lock with the real scripts. Each process follows
// the rules of lockcore's client; comments name the function of lockcore that has the rule.
type lockModel struct {
	trial
	atlas   *atlas
	server  *redisServer
	scripts [4]script // as lockKind.scripts

	ends  map[lockState]uint8 // states from which all processes are served, and after how many ticks
	worst uint8
}

// A lockState is the state of the server, of each client, and of the requests in flight.
type lockState struct {
	world  worldID
	c      [3]lockClient
	late   [2]lateRequest
	faults uint8
	deaths uint8
}

// A lateRequest is a request whose sender no longer waits for the answer. It may arrive at any
// time, or never.
type lateRequest struct {
	op      lineOp
	attempt attemptID
}

type phase uint8

const (
	idle phase = iota
	asking
	waiting
	holding // and takes the hold as valid
	spent   // the lease has ended, and Unlock has not been called yet
	dead
)

var phases = [...]string{"idle", "asking", "waiting", "holding", "spent", "dead"}

// transit is the position of a request or its answer.
type transit uint8

const (
	nowhere  transit = iota
	sent             // has not arrived at the server
	answered         // the answer is in transit
)

// A lockClient is one process: an attempt (acquire.go) or its lease (lease.go), and one
// background task that releases an attempt (Attempt.withdraw).
type lockClient struct {
	phase       phase
	slot        uint8
	op          lineOp // asking: for what
	transit     transit
	answer      int8
	age         uint8 // ticks since t0 of the request, at most the TTL, after which no validity is left
	open        bool  // attempt.unanswered: an acquire was not answered
	mayBeStored bool  // attempt.mayBeStored: the attempt may exist on the server
	placed      bool  // the client knows attempt.place
	again       uint8 // startLease: answers that arrived too late
	belief      uint8 // ticks for which the client takes the lease as valid
	reads       bool  // the hold was downgraded

	renewal   transit
	renewAge  uint8
	renewed   int8
	back      lineOp // leave or withdraw: the remaining work of the background task
	backSlot  uint8
	backTrans transit
	tombless  uint8 // slots of attempts that need a tombstone and may have none
}

// Two steps are not those of a process.
const (
	timePasses  = "time passes"
	counterLost = "the server loses the counter of tokens and the size, and 1 s passes"
)

func (m *lockModel) tell(s step) string {
	switch s.what {
	case timePasses:
		return fmt.Sprintf("%d s pass", s.detail)
	case counterLost:
		return s.what
	}
	return fmt.Sprintf("%c %s (%s)", 'A'+s.who, s.what, lineOps[s.detail])
}

func (m *lockModel) show(s lockState) string {
	var b strings.Builder
	for p := range m.processes {
		fmt.Fprintf(&b, "\n   %c %s %+v", 'A'+p, phases[s.c[p].phase], s.c[p])
	}
	for _, l := range s.late {
		fmt.Fprintf(&b, "\n   late: %s %v", lineOps[l.op], l.attempt)
	}
	return b.String() + m.atlas.world(s.world).String()
}

func (m *lockModel) start() lockState {
	s := lockState{world: m.atlas.id(nil)}
	for p := m.processes; p < 3; p++ {
		s.c[p].phase = dead
	}
	return s
}

// call runs a script on the state's world.
func (m *lockModel) call(s *lockState, c lineCall) outcome {
	sc := m.scripts[[...]int{opLook: 0, opRenew: 1, opLeave: 2, opWithdraw: 2, opDowngrade: 3}[c.op]]
	out := m.atlas.run(runKey{s.world, int32(sc.id), c.code()}, func(w world) (world, outcome) {
		keys, argv := m.request(w, c)
		m.server.mute = m.mute
		after, reply, published, err := m.server.run(sc, w, base, keys, argv)
		if err != nil {
			return w, outcome{broken: "the script failed: " + err.Error()}
		}
		return m.watch(w, c, after, reply, published)
	})
	s.world = out.world
	return out
}

// referenced reports whether an attempt occurs anywhere outside of the server.
func (s *lockState) referenced(a attemptID) bool {
	p, slot := a.process(), a.slot()
	c := &s.c[p]
	if c.phase != dead && (c.phase != idle && c.slot == slot || c.back != opNone && c.backSlot == slot) {
		return true
	}
	for _, l := range s.late {
		if l.op != opNone && l.attempt == a {
			return true
		}
	}
	return false
}

// canonical converts a state to the canonical form of all equivalent states.
func (m *lockModel) canonical(s lockState) lockState {
	if s.late[0].op < s.late[1].op || s.late[0].op == s.late[1].op && s.late[0].attempt < s.late[1].attempt {
		s.late[0], s.late[1] = s.late[1], s.late[0]
	}
	gone := int32(0)
	for a := range attemptID(m.processes * slots) {
		if !s.referenced(a) {
			gone |= 1 << a
			if !m.atlas.stands(s.world, a) {
				s.c[a.process()].tombless &^= 1 << a.slot()
			}
		}
	}
	if gone != 0 {
		s.world = m.atlas.change(s.world, -gone, func(w world) world {
			for a := range attempts {
				if gone&(1<<a) != 0 && !m.present(w, a) {
					w = m.forget(w, a)
				}
			}
			return normal(m.rules, w, 0)
		})
	}
	return s
}

// unknown applies an ErrUnknown error to an attempt (attempt.sendAcquire).
func (c *lockClient) unknown() {
	c.open, c.mayBeStored, c.transit, c.answer, c.age = true, true, nowhere, 0, 0
}

// abandon models Client.abandon. It returns false if the model has no free background task.
func (c *lockClient) abandon() bool {
	if c.mayBeStored {
		if c.back != opNone {
			return false
		}
		c.leaves()
	}
	c.removeAttempt()
	return true
}

// removeAttempt removes the client's attempt.
func (c *lockClient) removeAttempt() {
	*c = lockClient{back: c.back, backSlot: c.backSlot, backTrans: c.backTrans, tombless: c.tombless}
}

// deliver models the client's handling of the answer to its acquire (attempt.sendAcquire,
// attempt.makeLease, Mutex.waitInQueue).
func (c *lockClient) deliver(code int8, ttl uint8) (ok bool, broken string) {
	age := c.age
	c.transit, c.answer, c.age = nowhere, 0, 0
	if code <= 3 {
		c.mayBeStored = true
	}
	switch code {
	case 1:
		if age < ttl {
			slot, open := c.slot, c.open
			c.removeAttempt()
			c.phase, c.slot, c.open, c.mayBeStored = holding, slot, open, true
			c.belief = ttl - age
			return true, ""
		}
		// makeLease repeats the request with the mode `try`, three times in total.
		if c.again++; c.again == 3 {
			return c.abandon(), ""
		}
		c.phase, c.op = asking, opTry
	case 2, 3:
		c.phase, c.op, c.placed, c.again = waiting, opNone, true, 0
	case 4:
		return c.abandon(), ""
	case 5:
		c.phase, c.op = asking, opJoin
		if c.placed {
			c.op = opRejoin
		}
	case 8:
		return c.abandon(), ""
	case 6:
		return true, "an attempt that was not aborted was refused as aborted"
	default:
		return true, fmt.Sprintf("an answer of code %d", code)
	}
	return true, ""
}

func (s *lockState) addLate(op lineOp, a attemptID) bool {
	for i := range s.late {
		if s.late[i].op == opNone {
			s.late[i] = lateRequest{op, a}
			return true
		}
	}
	return false
}

// steps calls emit for every possible step from a state. broken is the promise that the step breaks, or "".
func (m *lockModel) steps(s lockState, emit func(what step, to lockState, broken string)) {
	emitted := func(what step, to lockState, broken string) { emit(what, m.canonical(to), broken) }
	for p := range m.processes {
		c := s.c[p]
		if c.phase == dead {
			continue
		}
		who := uint8(p)
		me := attemptOf(p, int(c.slot))
		mayFail := s.faults < m.faults
		simple := func(what string, change func(to *lockState, c *lockClient) bool) {
			to := s
			if change(&to, &to.c[p]) {
				emitted(step{what, who, 0}, to, "")
			}
		}
		// run sends a request that arrives immediately. If lost is set, its answer is lost.
		ask := func(from lockState, what string, op lineOp, answer func(*lockState, *lockClient, int8) (bool, string)) {
			out := m.call(&from, lineCall{op, attemptOf(p, int(from.c[p].slot))})
			ok, broken := true, out.broken
			if broken == "" {
				ok, broken = answer(&from, &from.c[p], out.code)
			}
			if ok {
				emitted(step{what, who, uint8(op)}, from, broken)
			}
		}
		// request emits all possible outcomes of an acquire.
		request := func(op lineOp, begin func(c *lockClient)) {
			from := s
			begin(&from.c[p])
			fc := &from.c[p]
			fc.phase, fc.op, fc.transit, fc.age, fc.answer = asking, op, nowhere, 0, 0
			ask(from, "asks", op, func(_ *lockState, c *lockClient, code int8) (bool, string) { return c.deliver(code, ttlTicks(p)) })
			if !mayFail {
				return
			}
			from.faults++
			lost := from
			lost.c[p].unknown()
			emitted(step{"asks, and the request is lost", who, uint8(op)}, lost, "")
			ask(from, "asks, and the answer is lost", op, func(_ *lockState, c *lockClient, _ int8) (bool, string) { c.unknown(); return true, "" })
			slow := from
			slow.c[p].transit = sent
			emitted(step{"asks, and the request is slow", who, uint8(op)}, slow, "")
			ask(from, "asks, and the answer is slow", op, func(_ *lockState, c *lockClient, code int8) (bool, string) {
				c.transit, c.answer = answered, code
				return true, ""
			})
		}
		switch c.phase {
		case idle:
			for slot := range slots {
				a := attemptOf(p, slot)
				if s.referenced(a) || m.atlas.stands(s.world, a) {
					continue
				}
				for _, op := range []lineOp{opTry, opJoin} {
					request(op, func(c *lockClient) { c.slot = uint8(slot) })
				}
				if m.kind.reads(attemptOf(p, 0)) == m.kind.reads(attemptOf(p, 1)) {
					break // the other one has the same effect
				}
			}
		case asking:
			switch c.transit {
			case nowhere: // askUntil: retry, or stop
				request(c.op, func(*lockClient) {})
				simple("abandons the attempt", func(_ *lockState, c *lockClient) bool { return c.abandon() })
			case sent:
				ask(s, "reaches the server late", c.op, func(_ *lockState, c *lockClient, code int8) (bool, string) { return c.deliver(code, ttlTicks(p)) })
				if mayFail {
					from := s
					from.faults++
					ask(from, "reaches the server late, and the answer is lost", c.op, func(_ *lockState, c *lockClient, _ int8) (bool, string) { c.unknown(); return true, "" })
				}
				simple("stops waiting for the answer", func(to *lockState, c *lockClient) bool {
					op := c.op
					c.unknown()
					return to.addLate(op, me)
				})
			case answered:
				to := s
				if ok, broken := to.c[p].deliver(c.answer, ttlTicks(p)); ok {
					emitted(step{"receives its late answer", who, 0}, to, broken)
				}
				simple("stops waiting for the answer", func(_ *lockState, c *lockClient) bool { c.unknown(); return true })
			}
		case waiting:
			request(opLook, func(*lockClient) {})
			simple("abandons the attempt", func(_ *lockState, c *lockClient) bool { return c.abandon() })
		case holding:
			m.renewals(s, p, ask, emitted)
			simple("releases", func(to *lockState, _ *lockClient) bool { return to.release(p) })
			if m.scripts[3].source != "" && !m.kind.reads(me) {
				downgrade := func(_ *lockState, c *lockClient, code int8) (bool, string) {
					if c.reads = true; code == 0 {
						c.removeAttempt()
					}
					return true, ""
				}
				ask(s, "downgrades", opDowngrade, downgrade)
				if mayFail {
					from := s
					from.faults++
					ask(from, "downgrades, and the answer is lost", opDowngrade, func(_ *lockState, c *lockClient, _ int8) (bool, string) {
						c.reads = true // the caller of Downgrade has stopped writing
						return true, ""
					})
				}
			}
		case dead:
		case spent:
			simple("releases", func(to *lockState, _ *lockClient) bool { return to.release(p) })
			simple("lets its lost lease be", func(to *lockState, c *lockClient) bool {
				if c.renewal == sent && !to.addLate(opRenew, me) {
					return false
				}
				c.removeAttempt()
				return true
			})
		}
		m.behind(s, p, emitted)
		if s.deaths < m.deaths {
			simple("dies", func(to *lockState, c *lockClient) bool {
				to.deaths++
				ok := true
				if c.transit == sent {
					ok = to.addLate(c.op, me)
				}
				*c = lockClient{phase: dead}
				return ok
			})
		}
	}
	for i, l := range s.late {
		if l.op == opNone || i > 0 && l == s.late[0] {
			continue
		}
		from := s
		from.late[i] = lateRequest{}
		out := m.call(&from, lineCall(l))
		emitted(step{"had sent a request that arrives now", uint8(l.attempt.process()), uint8(l.op)}, from, out.broken)
	}
	if m.loses && m.atlas.fact(s.world).fence && s.faults < m.faults {
		to := s
		to.faults++
		to.world = m.atlas.change(s.world, 1, func(w world) world {
			return normal(m.rules, w.with(key{name: keyPrefix + "fence"}).with(key{name: keyPrefix + "size"}), tick)
		})
		to = m.pass(to, 1)
		emitted(step{counterLost, 0, 0}, to, "")
	}
	for _, ticks := range []uint8{1, 4, 7} {
		emitted(step{timePasses, 0, ticks}, m.later(s, ticks), "")
	}
}

// renewals models the keeper's renewals of a lease (Keeper and Lease of internal/lease).
func (m *lockModel) renewals(s lockState, p int,
	ask func(lockState, string, lineOp, func(*lockState, *lockClient, int8) (bool, string)), emit func(step, lockState, string),
) {
	count := func(_ *lockState, c *lockClient, code int8) (bool, string) {
		age := c.renewAge
		c.renewal, c.renewAge, c.renewed = nowhere, 0, 0
		if code == 1 {
			// Lease.Extend: only while the lease is valid, and it never shortens it.
			if ttl := ttlTicks(p); age < ttl {
				c.belief = max(c.belief, ttl-age)
			}
			return true, ""
		}
		// Client.noteLoss: an acquire in flight must not acquire again.
		if c.open {
			c.mayBeStored = true
			return c.abandon(), ""
		}
		c.removeAttempt()
		return true, ""
	}
	who := uint8(p)
	switch s.c[p].renewal {
	case nowhere:
		ask(s, "renews", opRenew, count)
		if s.faults >= m.faults {
			return
		}
		from := s
		from.faults++
		ask(from, "renews, and the answer is lost", opRenew, func(*lockState, *lockClient, int8) (bool, string) { return true, "" })
		slow := from
		slow.c[p].renewal = sent
		emit(step{"renews, and the request is slow", who, 0}, slow, "")
		ask(from, "renews, and the answer is slow", opRenew, func(_ *lockState, c *lockClient, code int8) (bool, string) {
			c.renewal, c.renewed = answered, code
			return true, ""
		})
	case sent:
		ask(s, "has its renewal applied late", opRenew, count)
		to := s
		to.c[p].renewal, to.c[p].renewAge = nowhere, 0
		if to.addLate(opRenew, attemptOf(p, int(s.c[p].slot))) {
			emit(step{"stops waiting for its renewal", who, 0}, to, "")
		}
	case answered:
		to := s
		ok, _ := count(&to, &to.c[p], s.c[p].renewed)
		if ok {
			emit(step{"gets the answer to its renewal", who, 0}, to, "")
		}
	}
}

// release models Lease.Unlock: the lease has ended, and a renewal may be in flight.
func (s *lockState) release(p int) bool {
	c := &s.c[p]
	if c.back != opNone || c.renewal == sent && !s.addLate(opRenew, attemptOf(p, int(c.slot))) {
		return false
	}
	c.leaves()
	c.removeAttempt()
	return true
}

// leaves models attempt.leave in the background.
func (c *lockClient) leaves() {
	c.back, c.backSlot, c.backTrans = opLeave, c.slot, nowhere
	if c.open {
		c.back = opWithdraw
		c.tombless |= 1 << c.slot
	}
}

// behind models Client.withdraw, and the release of a grant for an attempt that has ended.
func (m *lockModel) behind(s lockState, p int, emit func(what step, to lockState, broken string)) {
	c, who := s.c[p], uint8(p)
	a := attemptOf(p, int(c.backSlot))
	leave := func(from lockState, what string, done bool) {
		out := m.call(&from, lineCall{c.back, a})
		if done {
			if c.back == opWithdraw {
				from.c[p].tombless &^= 1 << c.backSlot
			}
			from.c[p].back, from.c[p].backSlot = opNone, 0
		}
		from.c[p].backTrans = nowhere
		emit(step{what, who, uint8(c.back)}, from, out.broken)
	}
	switch {
	case c.back == opNone:
		// granted: a client that receives a message for an attempt that is neither waiting nor
		// held leaves again.
		for _, h := range m.atlas.holders(s.world) {
			gone, slot := h.attempt, int(h.attempt.slot())
			if gone.process() == p && (c.phase == idle || int(c.slot) != slot) {
				to := s
				to.c[p].back, to.c[p].backSlot = opLeave, uint8(slot)
				if c.tombless&(1<<slot) != 0 {
					to.c[p].back = opWithdraw
				}
				emit(step{"receives a grant that it no longer needs", who, 0}, to, "")
			}
		}
	case c.backTrans == nowhere:
		leave(s, "leaves, behind", true)
		if s.faults < m.faults {
			from := s
			from.faults++
			leave(from, "leaves, behind, and the answer is lost", false)
			slow := from
			slow.c[p].backTrans = sent
			emit(step{"leaves, behind, and the request is slow", who, 0}, slow, "")
			stops := from
			stops.c[p].back, stops.c[p].backSlot = opNone, 0
			emit(step{"stops trying to leave", who, 0}, stops, "")
		}
	default:
		leave(s, "leaves, behind", true)
		to := s
		to.c[p].backTrans = nowhere
		if to.addLate(c.back, a) {
			emit(step{"waits no longer for the answer to its leaving", who, 0}, to, "")
		}
	}
}

// later lets time pass. A lease whose time is over ends.
func (m *lockModel) later(s lockState, ticks uint8) lockState {
	s.world = m.atlas.later(s.world, int64(ticks)*tick)
	return m.pass(s, ticks)
}

// pass lets time pass for the clients.
func (m *lockModel) pass(s lockState, ticks uint8) lockState {
	for p := range s.c {
		c := &s.c[p]
		if c.phase == asking && c.transit != nowhere {
			c.age = min(c.age+ticks, ttlTicks(p))
		}
		if c.renewal != nowhere {
			c.renewAge = min(c.renewAge+ticks, ttlTicks(p))
		}
		if c.phase == holding {
			if c.belief <= ticks {
				c.belief, c.phase = 0, spent
				if c.renewal == answered {
					c.renewal = nowhere // the answer does not revive the lease
				}
			} else {
				c.belief -= ticks
			}
		}
	}
	return s
}
