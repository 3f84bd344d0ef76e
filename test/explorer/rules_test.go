package explorer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Time goes in steps of a second and a millisecond, so that what ends at the same
// time as another has ended before it or after it, and not with it.
const (
	tick       = 1001 // ms
	grantMax   = 1000 // for how long a grant stands until it is confirmed
	buryMillis = 300_000
	keep       = "7200000" // ms, of the counter of tokens

	stem = "n:{x}:"
)

// ttlTicks is in how many steps a lease of a process ends.
func ttlTicks(process int) uint8 { return [...]uint8{2, 1, 2}[process] }

func ttlMillis(process int) int64 { return int64(ttlTicks(process)) * 1000 }

// lapse is how long a waiter of a process keeps its place without being heard of:
// three refreshes and some (leaseTerms.refresh, lapse_of in Lua).
func lapse(process int) int64 { return ttlMillis(process) * 33 / 10 }

// An attemptID is one of the two attempts of one of the processes. Their names
// are used again once nothing at all is left of the earlier attempt. Of a lock
// that can be read the first writes and the second reads.
type attemptID uint8

const (
	slots    = 2
	attempts = attemptID(3 * slots)
)

func (a attemptID) process() int { return int(a) / slots }

func (a attemptID) slot() uint8 { return uint8(a) % slots }

func attemptOf(process, slot int) attemptID { return attemptID(process*slots + slot) }

func (a attemptID) String() string { return fmt.Sprintf("%c%d", 'A'+a.process(), a.slot()+1) }

// hearing says what PUBLISH answers.
type hearing uint8

const (
	// counted: how many hear it, and the attempts say that this can be trusted.
	counted hearing = iota
	// uncounted: nobody, as on a cluster, and the attempts say that it means nothing.
	uncounted
	// forbidden: an error, by an ACL that was changed meanwhile.
	forbidden
)

// A lockKind is what the kinds of lock differ in.
type lockKind interface {
	// scripts are acquire, renew, leave and downgrade; the last may be "".
	scripts() [4]string
	// value is what the server stores for an attempt.
	value(a attemptID, h hearing) string
	// holders reads who has the lock. What has ended is left out.
	holders(w world, h hearing) []holder
	// owner is for whom an attempt asks. Attempts of one owner hold together.
	owner(a attemptID) int
	// reads reports whether an attempt asks to read.
	reads(a attemptID) bool
	// numbers replaces the numbers in the lock's own key.
	numbers(k *key, visit func(meaning, string) string)
}

type holder struct {
	attempt attemptID
	left    int64 // ms
	reads   bool
	token   string // "": not known any more
}

// together reports whether two may hold a lock at once.
func together(k lockKind, a attemptID, aReads bool, b attemptID, bReads bool) bool {
	return k.owner(a) == k.owner(b) || aReads && bReads
}

// rules are those of a lock and its line. They watch over what the scripts do to
// the keys; what they have to remember for that is kept in hidden keys:
//
//	~token   the greatest so far
//	~place   attempt -> the place it was told
//	~order   attempts in order of arrival, by the rules, not by the queue
//	~heard   attempt that stands in line -> taken to be alive until
//	~back    attempts that were out of line, and are back at their old place
//	~granted process -> until when it is to confirm a grant, if it has asked nothing since
//	~buried  attempts that were given up, and whose giving up has arrived
type rules struct {
	kind    lockKind
	hearing hearing
}

func (r rules) lasting(name string) bool {
	return name == stem+"fence" || strings.HasPrefix(name, stem+"tomb")
}

func (r rules) numbers(k *key, visit func(meaning, string) string) {
	each := func(m meaning) {
		for i := range k.pairs {
			k.pairs[i].value = visit(m, k.pairs[i].value)
		}
	}
	switch k.name {
	case "~heard", "~granted":
		each(instant)
	case stem + "seen":
		for i, p := range k.pairs {
			if p.name != "!" {
				k.pairs[i].value = visit(instant, p.value)
				continue
			}
			var notes strings.Builder
			for note := range strings.Lines(p.value) {
				process, until, _ := strings.Cut(strings.TrimSuffix(note, "\n"), " ")
				notes.WriteString(process + " " + visit(instant, until) + "\n")
			}
			k.pairs[i].value = notes.String()
		}
	case stem + "queue", "~place":
		each(score)
	case stem + "fence", "~token":
		each(token)
	case stem + "lock":
		r.kind.numbers(k, visit)
	}
}

// tidy drops what is remembered of those who lapsed.
func (r rules) tidy(w world) world {
	heard, _ := w.get("~heard")
	for _, p := range heard.pairs {
		if number(p.value) <= base {
			w = w.set("~heard", p.name, "")
		}
	}
	return w
}

func (r rules) value(a attemptID) string { return r.kind.value(a, r.hearing) }

func (r rules) tomb(a attemptID) string {
	return fmt.Sprintf("%stomb:%c.%d", stem, 'A'+a.process(), a.slot()+1)
}

// derive reads off a world what is asked for often.
func (r rules) derive(w world) facts {
	f := facts{holders: r.kind.holders(w, r.hearing)}
	for a := range attempts {
		if r.present(w, a) {
			f.present |= 1 << a
		}
	}
	_, f.fence = w.get(stem + "fence")
	return f
}

// present reports whether an attempt stands in the lock or the line.
func (r rules) present(w world, a attemptID) bool {
	value := r.value(a)
	if k, ok := w.get(stem + "lock"); ok {
		for _, p := range k.pairs {
			if strings.Contains(p.value, value) || p.name == value {
				return true
			}
		}
	}
	k, _ := w.get(stem + "queue")
	_, ok := k.find(value)
	return ok
}

// forget drops all that is remembered of an attempt, so that its name can be
// used again.
func (r rules) forget(w world, a attemptID) world {
	name := a.String()
	w = w.with(key{name: r.tomb(a)})
	for _, k := range []string{"~place", "~heard", "~buried", "~back"} {
		if w.value(k, name) != "" {
			w = w.set(k, name, "")
		}
	}
	return w.withOrder(slices.DeleteFunc(w.order(), func(o string) bool { return o == name }))
}

func (w world) order() []string {
	k, _ := w.get("~order")
	var order []string
	for _, p := range k.pairs {
		order = append(order, p.value)
	}
	return order
}

func (w world) withOrder(order []string) world {
	k := key{name: "~order", kind: 'l'}
	for _, v := range order {
		k.pairs = append(k.pairs, pair{"", v})
	}
	return w.with(k)
}

// A lineCall is a request to a lock.
type lineCall struct {
	op      lineOp
	attempt attemptID
	deaf    uint8 // processes that nobody listens for
}

type lineOp uint8

const (
	opNone lineOp = iota
	opTry
	opJoin
	opRejoin // at the place that it was told
	opLook
	opRenew
	opLeave
	opBury // leaves with a tombstone
	opDowngrade
)

var lineOps = [...]string{"", "try", "join", "join at its old place", "look", "renew", "leave", "leave for good", "downgrade"}

func (c lineCall) code() uint32 {
	return uint32(c.op) | uint32(c.attempt)<<8 | uint32(c.deaf)<<16
}

func (c lineCall) acquires() bool { return c.op >= opTry && c.op <= opLook }

// request is how a call is written.
func (r rules) request(w world, c lineCall) (keys, argv []string) {
	me, ttl := r.value(c.attempt), strconv.FormatInt(ttlMillis(c.attempt.process()), 10)
	all := []string{stem + "lock", stem + "fence", stem + "queue", stem + "seen", r.tomb(c.attempt)}
	switch c.op {
	case opNone, opTry, opJoin, opLook:
	case opRenew:
		if _, isMutex := r.kind.(mutex); isMutex {
			return all[:2], []string{me, ttl, keep}
		}
		return all[:1], []string{me, ttl}
	case opLeave:
		return all, []string{me, "0", keep}
	case opBury:
		return all, []string{me, strconv.Itoa(buryMillis), keep}
	case opDowngrade:
		return all[:4], []string{me, keep}
	case opRejoin:
		return all, []string{me, ttl, w.value("~place", c.attempt.String()), keep, "0"}
	}
	return all, []string{me, ttl, lineOps[c.op], keep, "0"}
}
