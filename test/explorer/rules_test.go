package explorer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Time advances in steps of a second and a millisecond. So two instants are never equal, and one
// of two ends is before the other.
const (
	tick       = 1001 // ms
	grantMax   = 1000 // how long an unconfirmed grant lasts
	callMax    = 250  // how long a process that is called may stay silent
	tombMillis = 300_000
	keep       = "7200000" // TTL of the counter of tokens, in ms

	keyPrefix = "n:{x}:"
	channels  = "n:ch:"
)

// ttlTicks returns the number of steps until a lease of a process ends.
func ttlTicks(process int) uint8 { return [...]uint8{2, 1, 2}[process] }

func ttlMillis(process int) int64 { return int64(ttlTicks(process)) * 1000 }

// lapse returns how long a waiter of a process keeps its place without a refresh: slightly more
// than three refreshes (leaseTerms.refresh, part_place.lua).
func lapse(process int) int64 { return ttlMillis(process) * 33 / 10 }

// An attemptID is one of the two attempts of a process. Its name is reused when nothing of the
// earlier attempt is left. For a lock with readers, the first attempt writes and the second one
// reads.
type attemptID uint8

const (
	slots    = 2
	attempts = attemptID(3 * slots)
)

func (a attemptID) process() int { return int(a) / slots }

func (a attemptID) slot() uint8 { return uint8(a) % slots }

func attemptOf(process, slot int) attemptID { return attemptID(process*slots + slot) }

func (a attemptID) String() string { return fmt.Sprintf("%c%d", 'A'+a.process(), a.slot()+1) }

// A lockKind has the differences between the kinds of lock.
type lockKind interface {
	// scripts are acquire, renew, leave and, if there is one, downgrade.
	scripts() []string
	// value is what the server stores for an attempt.
	value(a attemptID) string
	// holders returns the holders of the lock, without expired ones.
	holders(w world) []holder
	// owner returns the owner of an attempt. Attempts of one owner can hold the lock together.
	owner(a attemptID) int
	// reads reports whether an attempt is a reader.
	reads(a attemptID) bool
	// numbers replaces the numbers in the lock's own key.
	numbers(k *key, visit func(meaning, string) string)
}

type holder struct {
	attempt attemptID
	left    int64 // ms
	reads   bool
	token   string // "": no longer known
	slot    string // of a Semaphore: its score
}

// together reports whether two attempts may hold a lock at the same time.
func together(k lockKind, a attemptID, aReads bool, b attemptID, bReads bool) bool {
	return k.owner(a) == k.owner(b) || aReads && bReads
}

// rules are those of a lock and its queue. They check the effect of scripts on the keys. Their
// own memory is in hidden keys:
//
//	~token     the greatest token so far
//	~place     attempt -> the place that it was given
//	~order     attempts in order of arrival, by the rules, not by the queue
//	~heard     queued attempt -> time until which it counts as alive
//	~back      attempts that left the queue and are back at their old place
//	~granted   process -> time until which it must confirm a grant or answer a call, if it has
//	           sent nothing since
//	~withdrawn    aborted attempts whose abort has arrived at the server
type rules struct {
	kind lockKind
	mute bool // PUBLISH is refused
}

// lasting reports whether a key's TTL is longer than all explored times.
func (r rules) lasting(name string) bool {
	return name == keyPrefix+"fence" || name == keyPrefix+"size" || strings.HasPrefix(name, keyPrefix+"tomb")
}

// numbers replaces each number of a key by the result of visit.
func (r rules) numbers(k *key, visit func(meaning, string) string) {
	each := func(m meaning) {
		for i := range k.pairs {
			k.pairs[i].value = visit(m, k.pairs[i].value)
		}
	}
	switch k.name {
	case "~heard", "~granted":
		each(instant)
	case keyPrefix + "seen":
		for i, p := range k.pairs {
			if p.name != "!" {
				k.pairs[i].value = visit(instant, p.value)
				continue
			}
			var notes strings.Builder
			for note := range strings.Lines(p.value) {
				process, until, _ := strings.Cut(strings.TrimSuffix(note, "\n"), " ")
				until, called := strings.CutPrefix(until, "-")
				process += map[bool]string{true: " -", false: " "}[called]
				notes.WriteString(process + visit(instant, until) + "\n")
			}
			k.pairs[i].value = notes.String()
		}
	case keyPrefix + "queue", "~place":
		each(score)
	case keyPrefix + "fence", "~token":
		each(token)
	case keyPrefix + "lock":
		r.kind.numbers(k, visit)
	}
}

// tidy removes the memory of attempts that have lapsed.
func (r rules) tidy(w world) world {
	heard, _ := w.get("~heard")
	for _, p := range heard.pairs {
		if number(p.value) <= base {
			w = w.set("~heard", p.name, "")
		}
	}
	return w
}

func (r rules) value(a attemptID) string { return r.kind.value(a) }

func (r rules) tomb(a attemptID) string {
	return fmt.Sprintf("%stomb:%c.%d", keyPrefix, 'A'+a.process(), a.slot()+1)
}

// derive computes frequently used facts of a world.
func (r rules) derive(w world) facts {
	f := facts{holders: r.kind.holders(w)}
	for a := range attempts {
		if r.present(w, a) {
			f.present |= 1 << a
		}
	}
	_, f.fence = w.get(keyPrefix + "fence")
	return f
}

// present reports whether an attempt is in the lock or in the queue.
func (r rules) present(w world, a attemptID) bool {
	value := r.value(a)
	if k, ok := w.get(keyPrefix + "lock"); ok {
		for _, p := range k.pairs {
			if strings.Contains(p.value, value) || p.name == value {
				return true
			}
		}
	}
	k, _ := w.get(keyPrefix + "queue")
	_, ok := k.find(value)
	return ok
}

// forget removes all memory of an attempt, so that its name can be reused.
func (r rules) forget(w world, a attemptID) world {
	name := a.String()
	w = w.with(key{name: r.tomb(a)})
	for _, k := range []string{"~place", "~heard", "~withdrawn", "~back"} {
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
}

type lineOp uint8

const (
	opNone lineOp = iota
	opTry
	opJoin
	opRejoin // at its previous place
	opLook
	opRenew
	opLeave
	opWithdraw // leaves and writes a tombstone
	opDowngrade
)

var lineOps = [...]string{"", "try", "join", "join at its old place", "look", "renew", "leave", "leave for good", "downgrade"}

func (c lineCall) code() uint32 {
	return uint32(c.op) | uint32(c.attempt)<<8
}

func (c lineCall) acquires() bool { return c.op >= opTry && c.op <= opLook }

// request returns the text of a call.
func (r rules) request(w world, c lineCall) (keys, argv []string) {
	me, ttl := r.value(c.attempt), strconv.FormatInt(ttlMillis(c.attempt.process()), 10)
	all := []string{keyPrefix + "lock", keyPrefix + "fence", keyPrefix + "queue", keyPrefix + "seen", r.tomb(c.attempt)}
	_, hasSlots := r.kind.(semaphore)
	if hasSlots {
		all = append(all, keyPrefix+"size")
	}
	switch c.op {
	case opNone, opTry, opJoin, opRejoin, opLook:
	case opRenew:
		if _, isMutex := r.kind.(mutex); isMutex {
			return all[:2], []string{me, ttl, keep}
		}
		if hasSlots {
			return []string{all[0], all[5]}, []string{me, ttl, "1"}
		}
		return all[:1], []string{me, ttl}
	case opLeave:
		if !hasSlots {
			all = all[:4]
		}
		return all, []string{me, keep + " 0 " + channels}
	case opWithdraw:
		return all, []string{me, keep + " 0 " + channels, strconv.Itoa(tombMillis)}
	case opDowngrade:
		return all[:4], []string{me, keep, channels}
	}
	mode := lineOps[c.op]
	if c.op == opRejoin {
		mode = w.value("~place", c.attempt.String())
	}
	mode += " " + channels
	if _, isMutex := r.kind.(mutex); isMutex {
		return all, []string{me, ttl, mode, keep}
	}
	return all, []string{me, ttl, keep, mode, "", strconv.Itoa(semaphoreSize)}
}
