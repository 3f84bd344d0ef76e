package lock

import (
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// mutexKind is the Kind of a mutex, which one attempt holds at a time.
type mutexKind struct {
	record, news string // see Client.Recorded; empty without a record
}

func (mutexKind) Label() string { return "mutex" }

func (mutexKind) stored(process string, number uint64, identity string) string {
	return attemptValue(process, number, identity)
}

// Acquire sets the TTL of the counter of tokens, unless a grant of the name has set it just before.
func (mutexKind) Acquire(a *Attempt, mode string) wire.Request {
	keys, rest := a.keys.argsWith(a.Tomb()), mode+" "+a.keys.channels
	setAt := a.counterSet.Load()
	a.setsCounter = setAt == 0 || a.c.clock.Now() >= time.Duration(setAt)+counterPause
	if !a.setsCounter {
		return a.c.scripts.mutexAcquire.Call(keys, &a.value, &a.terms.ttlText, rest)
	}
	return a.c.scripts.mutexAcquire.Call(keys, &a.value, &a.terms.ttlText, rest, &a.terms.keepText)
}

// The first renewal also extends the TTL of the token counter. Later renewals do so after each eighth of that TTL.
func (mutexKind) Renewal(a *Attempt) wire.Request {
	if !a.extendsCounter(a.c.clock.Now()) {
		return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
	}
	return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock, &a.keys.fence}, &a.value, &a.terms.ttlText, &a.terms.keepText)
}

// extendsCounter reports whether a renewal at a time extends the TTL of the token counter, or of a Semaphore's size.
func (a *Attempt) extendsCounter(now time.Duration) bool {
	keep := a.terms.keep
	if _, isSemaphore := a.kind.(slotKind); isSemaphore {
		keep = min(keep, sizeRetention)
	}
	extendedAt := a.counterExtendedAt.Load()
	return extendedAt == 0 || now >= time.Duration(extendedAt)+keep/8
}

// sizeRetention is the TTL of a Semaphore's size, WEEK in part_entry.lua.
const sizeRetention = 7 * 24 * time.Hour

func (k mutexKind) Release(a *Attempt, withdraw bool) wire.Request {
	if k.record == "" {
		return a.releaseBy(a.c.scripts.mutexLeave, withdraw)
	}
	tomb := int64(0)
	if withdraw {
		tomb = millis(a.TombTTL())
	}
	return a.c.scripts.mutexLeave.Call(append(a.keys.argsWith(a.Tomb()), k.record), &a.value, a.leaveArgs(), tomb, k.news)
}

// ownedKind is the Kind of a lock that one owner holds for writing, or any number of owners for reading.
type ownedKind struct {
	mode  string // ModeRead or ModeWrite
	owner string
}

// Owned returns the kind of a lock that an owner holds.
func Owned(mode, owner string) Kind { return ownedKind{mode, owner} }

func (k ownedKind) Label() string {
	if k.mode == ModeRead {
		return "read"
	}
	return "write"
}

func (k ownedKind) stored(process string, number uint64, identity string) string {
	return ownedValue(k.mode, k.owner, process, number, identity)
}

func (ownedKind) Acquire(a *Attempt, mode string) wire.Request {
	extends := "" // lease whose token to keep; by default the lease of an earlier request of this attempt
	if l := a.validOwnerLease(); l != nil {
		a.ownerLease, extends = l, l.a.value
	} else if a.ownerLease != nil {
		extends = "-" // no lease: the stored entry may have the token of a lease that has ended
	}
	return a.c.scripts.ownedAcquire.Call(a.keys.argsWith(a.Tomb()), &a.value, &a.terms.ttlText, &a.terms.keepText, mode+" "+a.keys.channels, extends)
}

func (ownedKind) Renewal(a *Attempt) wire.Request {
	return a.c.scripts.ownedRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
}

func (ownedKind) Release(a *Attempt, withdraw bool) wire.Request {
	return a.releaseBy(a.c.scripts.ownedLeave, withdraw)
}

// slotKind is the Kind of a Semaphore, which up to n attempts hold, each in a slot of its own.
type slotKind struct {
	n int // size if none is stored
}

// Slots returns the kind of a Semaphore, whose size is n if none is stored.
func Slots(n int) Kind { return slotKind{n} }

func (slotKind) Label() string { return "semaphore" }

func (slotKind) stored(process string, number uint64, identity string) string {
	return slotValue(process, number, identity)
}

func (k slotKind) Acquire(a *Attempt, mode string) wire.Request {
	return a.c.scripts.ownedAcquire.Call(append(a.keys.argsWith(a.Tomb()), a.keys.key("size")), &a.value, &a.terms.ttlText, &a.terms.keepText, mode+" "+a.keys.channels, "", k.n)
}

// Some renewals also extend the TTL of the size, like the TTL of the token counter in mutexKind.Renewal.
func (slotKind) Renewal(a *Attempt) wire.Request {
	if !a.extendsCounter(a.c.clock.Now()) {
		return a.c.scripts.ownedRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
	}
	return a.c.scripts.ownedRenew.Call([]any{&a.keys.lock, a.keys.key("size")}, &a.value, &a.terms.ttlText, 1)
}

func (slotKind) Release(a *Attempt, withdraw bool) wire.Request {
	return a.releaseBy(a.c.scripts.ownedLeave, withdraw)
}

// kindOf returns the kind of a stored value.
func kindOf(v Value) Kind {
	switch {
	case v.semaphore:
		return slotKind{}
	case v.mode == "":
		return mutexKind{}
	}
	return ownedKind{v.mode, v.Owner}
}

// leaveArgs returns one argument of a release: the TTL of the token counter, whether the Client is closed, and the
// prefix of the channels. A closed Client cannot check a grant that the script makes.
func (a *Attempt) leaveArgs() string {
	closed := " 0 "
	a.c.mu.Lock()
	if a.c.closed {
		closed = " 1 "
	}
	a.c.mu.Unlock()
	return a.terms.keepText + closed + a.keys.channels
}

// releaseBy returns the request of a script that releases the attempt.
func (a *Attempt) releaseBy(s *wire.Script, withdraw bool) wire.Request {
	rest := a.leaveArgs()
	keys := a.keys.args()
	_, isSemaphore := a.kind.(slotKind)
	if isSemaphore || withdraw {
		keys = a.keys.argsWith(a.Tomb())
	}
	if isSemaphore {
		keys = append(keys, a.keys.key("size"))
	}
	if withdraw {
		return s.Call(keys, &a.value, rest, millis(a.TombTTL()))
	}
	return s.Call(keys, &a.value, rest)
}

// ownerOf returns the owner of an attempt. ok is false for a kind without owners.
func ownerOf(a *Attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

func (o owners) add(l *Lease) {
	key, ok := ownerOf(l.a)
	if !ok {
		return
	}
	leases := o[key]
	if leases == nil {
		leases = &ownerLeases{all: map[*Lease]struct{}{}}
		o[key] = leases
	}
	leases.all[l] = struct{}{}
	leases.newest = max(leases.newest, l.token)
}

func (o owners) remove(l *Lease) {
	key, ok := ownerOf(l.a)
	leases := o[key]
	if !ok || leases == nil {
		return
	}
	if delete(leases.all, l); len(leases.all) == 0 {
		delete(o, key)
	}
}

// validOwnerLease returns a valid lease of the attempt's owner with the owner's newest token, or nil. A lease with an
// earlier token does not count, so that tokens do not go back. It prefers a write lease, because a writer cannot keep
// the token of a read lease. It reads the clock, because the time of a lease can be over before its timer has run.
func (a *Attempt) validOwnerLease() (valid *Lease) {
	key, _ := ownerOf(a)
	c := a.c
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if leases := c.owners[key]; leases != nil {
		for l := range leases.all {
			if l.token == leases.newest && l.life.ErrAt(now) == nil && (valid == nil || l.a.kind.(ownedKind).mode == ModeWrite) {
				valid = l
			}
		}
	}
	return valid
}

// isStale reports whether a granted token is older than the token of ownerLease, or equal after that lease has ended.
func (a *Attempt) isStale(token uint64) bool {
	l := a.ownerLease
	return l != nil && (token < l.token || token == l.token && l.life.ErrAt(a.c.clock.Now()) != nil)
}
