package explorer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A verdict is the check of one run of a script.
type verdict struct {
	rules
	call    lineCall
	me      string
	before  world
	w       world // after the run
	list    []any // the items of the answer
	was, is []holder
	called  []string // processes
	out     outcome
}

// watch checks the effect of a script against the promises, and updates the hidden keys.
func (r rules) watch(before world, c lineCall, after []key, reply any, published []message) (world, outcome) {
	v := &verdict{rules: r, call: c, me: c.attempt.String(), before: before}
	v.w = append(v.w, after...)
	for _, k := range before {
		if k.hidden() {
			v.w = append(v.w, k)
		}
	}
	if token, ok := reply.(string); ok {
		reply = []any{1, token}
	}
	v.list, _ = reply.([]any)
	if len(v.list) > 0 {
		reply = v.list[0]
	}
	code, ok := reply.(int)
	if code == 9 {
		v.list[0], code = 1, 1
	}
	if !ok {
		v.broken("an unknown answer: %v", reply)
		return v.w, v.out
	}
	v.out.code = int8(code)
	for _, m := range published {
		if strings.HasPrefix(m.text, "l ") {
			v.called = append(v.called, m.channel[len(m.channel)-1:])
		}
	}
	v.was, v.is = r.kind.holders(before), r.kind.holders(v.w)
	v.confirms()
	v.keys()
	v.hold()
	v.tokens()
	v.arrival()
	return v.w, v.out
}

// confirms records which processes must confirm a grant or answer a call.
func (v *verdict) confirms() {
	asks := func(w world) world { return w.set("~granted", v.me[:1], "") }
	if v.call.op != opRenew && v.call.op != opDowngrade {
		v.before, v.w = asks(v.before), asks(v.w)
	}
	for _, process := range v.called {
		v.w = v.w.set("~granted", process, strconv.FormatInt(base+callMax, 10))
	}
	for _, g := range v.granted() {
		if g.attempt != v.call.attempt {
			v.w = v.w.set("~granted", g.attempt.String()[:1], strconv.FormatInt(base+grantMax, 10))
		}
	}
}

func (v *verdict) broken(format string, args ...any) {
	if v.out.broken == "" {
		v.out.broken = fmt.Sprintf(format, args...)
	}
}

func find(list []holder, a attemptID) (holder, bool) {
	for _, h := range list {
		if h.attempt == a {
			return h, true
		}
	}
	return holder{}, false
}

// granted returns the attempts that hold the lock and did not before.
func (v *verdict) granted() []holder {
	var fresh []holder
	for _, h := range v.is {
		if _, had := find(v.was, h.attempt); !had {
			fresh = append(fresh, h)
		}
	}
	return fresh
}

// inside returns the owners that have held the lock without a gap, possibly with different
// attempts.
func (v *verdict) inside(a attemptID) (holder, bool) {
	for _, h := range v.was {
		gone := false
		if h.attempt == v.call.attempt {
			_, stays := find(v.is, h.attempt)
			gone = !stays
		}
		if v.kind.owner(h.attempt) == v.kind.owner(a) && !gone {
			return h, true
		}
	}
	return holder{}, false
}

// keys: every key expires, and the lock's key not before a hold on it.
func (v *verdict) keys() {
	for _, k := range v.w {
		if !k.hidden() && k.ttl == 0 {
			v.broken("the key %s has no TTL", k.name)
		}
	}
	lock, ok := v.w.get(keyPrefix + "lock")
	last := int64(0)
	for _, h := range v.is {
		last = max(last, h.left)
	}
	if ok && lock.ttl != last {
		v.broken("the lock ends in %d ms, its last holder's right in %d ms", lock.ttl, last)
	}
	if seen, ok := v.w.get(keyPrefix + "seen"); ok && v.call.op != opRenew {
		queue, _ := v.w.get(keyPrefix + "queue")
		for _, p := range seen.pairs {
			if _, ok := queue.find(p.name); !ok && p.name != "!" {
				v.broken("%s is kept in the queue, and does not wait", p.name)
			}
		}
	}
}

// hold: the holders of the lock, and the ends of their holds.
func (v *verdict) hold() {
	c := v.call
	for _, h := range v.was {
		now, has := find(v.is, h.attempt)
		switch {
		case h.attempt == c.attempt:
		case !has:
			v.broken("%s took the lock from %v", v.me, h.attempt)
		case now.left != h.left:
			v.broken("%s has changed the end of %v's hold from %d to %d ms", v.me, h.attempt, h.left, now.left)
		case now.reads != h.reads:
			v.broken("%s has changed whether %v reads", v.me, h.attempt)
		}
	}
	for _, h := range v.granted() {
		if h.attempt != c.attempt && h.left > grantMax {
			v.broken("an unconfirmed grant lasts %d ms", h.left)
		}
	}
	for i, h := range v.is {
		if most := ttlMillis(h.attempt.process()); h.left > most {
			v.broken("%v holds for %d ms", h.attempt, h.left)
		}
		if v.w.value("~withdrawn", h.attempt.String()) != "" {
			v.broken("%v holds the lock although it was aborted", h.attempt)
		}
		if v.inQueue(h.attempt.String()) {
			v.broken("%v holds the lock and is queued", h.attempt)
		}
		for _, o := range v.is[:i] {
			if !together(v.kind, h.attempt, h.reads, o.attempt, o.reads) {
				v.broken("%v and %v hold together", o.attempt, h.attempt)
			}
		}
	}
	before, held := find(v.was, c.attempt)
	now, holds := find(v.is, c.attempt)
	v.slots(now)
	switch {
	case c.acquires() && holds != (v.out.code == 1):
		v.broken("%s was answered %d, and whether it holds is: %v", v.me, v.out.code, holds)
	case c.op != opTry && c.acquires() && v.out.code == 4:
		v.broken("%s waits but is not queued", v.me)
	case (c.op == opLeave || c.op == opWithdraw) && holds:
		v.broken("%s has left and holds still", v.me)
	case (c.op == opLeave || c.op == opWithdraw) && held != (v.out.code > 0):
		v.broken("%s left, and was answered %d", v.me, v.out.code)
	case (c.op == opRenew || c.op == opDowngrade) && (held != holds || holds != (v.out.code == 1)):
		v.broken("%s was answered %d, and whether it held and holds is: %v, %v", v.me, v.out.code, held, holds)
	case c.op == opDowngrade && holds && (!now.reads || now.left != before.left):
		v.broken("%s does not read for as long as it wrote", v.me)
	case c.acquires() && (v.out.code == 2 || v.out.code == 3) && v.upgrades(c.attempt):
		v.broken("%s waits to write while its owner reads and others do", v.me)
	case c.acquires() && v.out.code == 8 && !v.upgrades(c.attempt):
		v.broken("%s was refused to write although it may", v.me)
	}
}

// slots: there are no more holders than slots, each has a slot of its own, and keeps it.
func (v *verdict) slots(mine holder) {
	if _, ok := v.kind.(semaphore); !ok {
		return
	}
	taken := map[string]bool{}
	for _, h := range v.is {
		slot := number(h.slot) - number(slotScore(0))
		if was, had := find(v.was, h.attempt); taken[h.slot] || slot < 0 || slot >= semaphoreSize || had && was.slot != h.slot {
			v.broken("%v has slot %q", h.attempt, h.slot)
		}
		taken[h.slot] = true
	}
	if v.call.acquires() && v.out.code == 1 && (len(v.list) != 4 || slotScore(v.list[2].(int)) != mine.slot || v.list[3] != semaphoreSize) {
		v.broken("%s has slot %q, and was told %v", v.me, mine.slot, v.list)
	}
	if size := v.w.value(keyPrefix+"size", ""); len(v.is) > len(v.was) && size != strconv.Itoa(semaphoreSize) {
		v.broken("the size is %q", size)
	}
}

// upgrades reports whether an attempt wants to write while its owner only reads and other owners
// read, too. Such an attempt in the queue is refused at its next look, and leaves.
func (v *verdict) upgrades(a attemptID) bool {
	if v.kind.reads(a) {
		return false
	}
	own, others := false, false
	for _, h := range v.is {
		if v.kind.owner(h.attempt) != v.kind.owner(a) {
			others = true
		} else if own = true; !h.reads {
			return false
		}
	}
	return own && others
}

// tokens grow: a hold keeps its token, or gets one by another acquire, and each new one is greater than
// all earlier ones. The holds of an owner have different tokens, because no request here names another
// lease. A mutex may lose its token.
func (v *verdict) tokens() {
	last := v.w.value("~token", "last")
	greater := func(text string) bool { return text != "" && (last == "" || number(text) > number(last)) }
	for _, h := range v.is {
		was, had := find(v.was, h.attempt)
		switch {
		case had && h.token == was.token:
		case had && (was.token == "" || h.attempt == v.call.attempt && v.call.acquires()) && (h.token == "" || greater(h.token)):
		case had:
			v.broken("the token of %v has changed from %s to %s", h.attempt, was.token, h.token)
		case !greater(h.token):
			v.broken("%v was granted token %s after %s", h.attempt, h.token, last)
		}
		if v.call.attempt == h.attempt && v.call.acquires() {
			if told, _ := v.at(1).(string); told == "" || told != h.token {
				v.broken("%s received token %q but has %s", v.me, told, h.token)
			}
		}
		for _, o := range v.is {
			if h.token != "" && h.token == o.token && o.attempt != h.attempt {
				v.broken("%v and %v have the same token", o.attempt, h.attempt)
			}
		}
	}
	for _, h := range v.is {
		if l := v.w.value("~token", "last"); h.token != "" && (l == "" || number(h.token) > number(l)) {
			v.w = v.w.set("~token", "last", h.token)
		}
	}
}

func (v *verdict) at(i int) any {
	if i < len(v.list) {
		return v.list[i]
	}
	return nil
}

func (v *verdict) inQueue(name string) bool {
	queue, _ := v.w.get(keyPrefix + "queue")
	for a := range attempts {
		if a.String() == name {
			_, ok := queue.find(v.value(a))
			return ok
		}
	}
	return false
}

// heard: the attempt was refreshed recently, and its process confirms its grants and answers
// calls.
func (v *verdict) heard(name string) bool {
	until := v.before.value("~granted", name[:1])
	return v.w.value("~heard", name) != "" && (until == "" || number(until) > base)
}

// arrival: live attempts are served in order of arrival, and no attempt waits while it could be
// granted the lock.
func (v *verdict) arrival() {
	c, order := v.call, v.w.order()
	granted := v.granted()
	for _, g := range granted {
		if g.attempt != c.attempt && !v.heard(g.attempt.String()) {
			v.broken("%v was granted the lock although it has lapsed", g.attempt)
		}
		if _, ok := v.inside(g.attempt); ok {
			continue // an owner inside the lock does not wait for its own waiters
		}
		name := g.attempt.String()
		for _, a := range order {
			if a == name {
				break
			}
			_, holds := find(v.is, parseAttemptID(a))
			leaving := a == v.me && !c.acquires()
			refused := v.upgrades(parseAttemptID(a))
			// An attempt that left the queue and is back at its old place may share the place with
			// another attempt, if both have the same millisecond.
			tied := v.w.value("~place", a) == v.w.value("~place", name) && v.w.value("~back", a)+v.w.value("~back", name) != ""
			if v.heard(a) && !holds && !leaving && !refused && !tied {
				v.broken("%s was served before %s, which came earlier and is alive", name, a)
			}
		}
	}
	waits := c.acquires() && (v.out.code == 2 || v.out.code == 3)
	stood, _ := v.before.get(keyPrefix + "queue")
	_, stoodIn := stood.find(v.value(c.attempt))
	switch {
	case waits:
		place, _ := v.at(2).(string)
		v.w = v.w.set("~place", v.me, place).set("~heard", v.me, strconv.FormatInt(base+lapse(c.attempt.process()), 10))
		if c.op == opJoin && !stoodIn {
			order = append(slices.DeleteFunc(order, func(a string) bool { return a == v.me }), v.me)
		}
		if c.op == opRejoin {
			v.w = v.w.set("~back", v.me, "yes")
		}
		if c.op == opTry && !stoodIn {
			v.broken("%s tried and is queued", v.me)
		}
	case c.acquires() && (v.out.code == 5 || v.out.code == 4) && v.heard(v.me):
		v.broken("%s has lost its place in the queue", v.me)
	case c.op == opLeave || c.op == opWithdraw || c.acquires() && v.out.code == 8:
		order = slices.DeleteFunc(order, func(a string) bool { return a == v.me })
		v.w = v.w.set("~heard", v.me, "").set("~place", v.me, "").set("~back", v.me, "")
		if c.op == opWithdraw {
			v.w = v.w.set("~withdrawn", v.me, "yes")
		}
	}
	for _, a := range order {
		if v.w.value("~heard", a) == "" || v.inQueue(a) {
			continue
		}
		if _, holds := find(v.is, parseAttemptID(a)); !holds && v.heard(a) && !v.upgrades(parseAttemptID(a)) {
			v.broken("%s has lost its place in the queue although it is alive", a)
		}
		v.w = v.w.set("~heard", a, "")
	}
	v.w = v.w.withOrder(order)
	if waits {
		v.free(order)
	}
}

// free: an attempt that looks and must wait does not leave a lock free that the first waiter
// could have.
func (v *verdict) free(order []string) {
	for _, a := range order {
		if !v.heard(a) {
			continue
		}
		first := parseAttemptID(a)
		if _, ok := v.kind.(semaphore); ok && len(v.is) == semaphoreSize {
			return
		}
		for _, h := range v.is {
			if !together(v.kind, first, v.kind.reads(first), h.attempt, h.reads) {
				return
			}
		}
		if _, ok := v.inside(first); ok && a != v.me {
			return // its next look returns whether it can start to write
		}
		v.broken("%s looked at a lock that is free for %s, and waits", v.me, a)
		return
	}
}

func parseAttemptID(name string) attemptID {
	return attemptOf(int(name[0]-'A'), int(name[1]-'1'))
}
