package explorer

import (
	"fmt"
	"slices"
)

// fault checks a state: which clients take their hold as valid, and whether all waiters are served
// without further faults.
func (m *lockModel) fault(s lockState) string {
	holders := m.atlas.holders(s.world)
	believers := 0
	for p, c := range s.c {
		if c.belief == 0 {
			continue
		}
		if _, ok := m.kind.(semaphore); ok {
			if believers++; believers > semaphoreSize {
				return fmt.Sprintf("%d hold one of %d slots", believers, semaphoreSize)
			}
		}
		me := attemptOf(p, int(c.slot))
		for q, o := range s.c[:p] {
			other := attemptOf(q, int(o.slot))
			if o.belief > 0 && !together(m.kind, me, m.kind.reads(me) || c.reads, other, m.kind.reads(other) || o.reads) {
				return fmt.Sprintf("%v and %v both hold", other, me)
			}
		}
		// The client's end is earlier than the server's.
		if h, ok := find(holders, me); !ok || h.left <= int64(c.belief-1)*tick {
			return fmt.Sprintf("%v takes its hold as valid for %d s, but the server does not", me, c.belief)
		}
	}
	return m.endsWell(s)
}

// patience is the maximum number of ticks until all waiters of any state are served without
// further faults. It covers two dead waiters at the front that are not known to be dead, the
// holder's TTL, and the grants that each of them lets expire.
const patience = 12

// endsWell continues from a state without further faults: requests in flight arrive, holders
// release, waiters look once per tick, and no message is delivered. Then every live waiter must
// have been served.
func (m *lockModel) endsWell(s lockState) string {
	if _, known := m.ends[s]; known {
		return ""
	}
	passed := []lockState{s}
	var rest uint8
	for ticks := uint8(0); ; ticks++ {
		var broken string
		var busy bool
		s, busy, broken = m.round(s)
		if broken != "" {
			return "with no more faults: " + broken
		}
		s = m.canonical(s)
		if !busy {
			break
		}
		if ticks == patience {
			return fmt.Sprintf("a waiter waits for more than %d s without further faults:%s", patience, m.show(s))
		}
		s = m.canonical(m.later(s, 1))
		if left, known := m.ends[s]; known {
			rest = left + 1
			break
		}
		passed = append(passed, s)
	}
	for _, s := range slices.Backward(passed) {
		m.ends[s] = rest
		m.worst = max(m.worst, rest)
		rest++
	}
	if m.worst > patience {
		return fmt.Sprintf("a waiter waits for %d s without further faults", m.worst)
	}
	return ""
}

// round runs all actions that are due within one tick.
func (m *lockModel) round(s lockState) (_ lockState, busy bool, broken string) {
	call := func(op lineOp, a attemptID) int8 {
		out := m.call(&s, lineCall{op: op, attempt: a})
		if broken == "" {
			broken = out.broken
		}
		return out.code
	}
	for i, l := range s.late {
		if l.op != opNone {
			s.late[i] = lateRequest{}
			call(l.op, l.attempt)
		}
	}
	for p := range m.processes {
		c := &s.c[p]
		me := attemptOf(p, int(c.slot))
		for range 6 {
			if broken != "" {
				return s, busy, broken
			}
			switch {
			case c.phase == asking && c.transit == answered:
				_, broken = c.deliver(c.answer, ttlTicks(p))
				continue
			case c.phase == asking:
				if c.transit == nowhere {
					c.age = 0
				}
				_, broken = c.deliver(call(c.op, me), ttlTicks(p))
				continue
			case c.back != opNone:
				call(c.back, attemptOf(p, int(c.backSlot)))
				c.back, c.backSlot, c.backTrans = opNone, 0, nowhere
				continue
			case c.phase == holding || c.phase == spent:
				if c.renewal == sent {
					call(opRenew, me)
				}
				c.renewal = nowhere
				s.release(p)
				continue
			}
			break
		}
		if c.phase == waiting {
			c.phase, c.op = asking, opLook
			_, broken2 := c.deliver(call(opLook, me), ttlTicks(p))
			if broken == "" {
				broken = broken2
			}
		}
		busy = busy || c.phase != idle && c.phase != dead || c.back != opNone
	}
	return s, busy, broken
}
