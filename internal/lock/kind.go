package lock

import (
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// mutexKind is held by one attempt at a time.
type mutexKind struct {
	record, news string // see Client.Recorded; empty: it has no record
}

func (mutexKind) Label() string { return kindMutex }

func (mutexKind) stored(process string, number uint64, identity string) string {
	return attemptValue(process, number, identity)
}

// Acquire sets the TTL of the counter of tokens, unless a grant of the name has set it just before.
func (mutexKind) Acquire(a *Attempt, mode string) wire.Request {
	keys, rest := a.keys.argsWith(a.Tomb()), mode+" "+a.keys.channels
	set := a.counterSet.Load()
	a.setsCounter = set == 0 || a.c.clock.Now() >= time.Duration(set)+counterPause
	if !a.setsCounter {
		return a.c.scripts.mutexAcquire.Call(keys, &a.value, &a.terms.ttlText, rest)
	}
	return a.c.scripts.mutexAcquire.Call(keys, &a.value, &a.terms.ttlText, rest, &a.terms.keepText)
}

// counterPause is how long the grants of a name leave the TTL of the counter of tokens as it is. It is short, as
// another client may set a shorter TTL.
const counterPause = time.Second

// Renewal extends the counter of tokens, too, at first and then after each eighth of the time for which
// that is kept.
func (mutexKind) Renewal(a *Attempt) wire.Request {
	if !a.extendsCounter(a.c.clock.Now()) {
		return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
	}
	return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock, &a.keys.fence}, &a.value, &a.terms.ttlText, &a.terms.keepText)
}

// extendsCounter reports whether a renewal at that time extends the counter of tokens, or the size of a Semaphore.
func (a *Attempt) extendsCounter(now time.Duration) bool {
	keep := a.terms.keep
	if _, slots := a.kind.(slotKind); slots {
		keep = min(keep, sizeRetention)
	}
	last := a.keptAt.Load()
	return last == 0 || now >= time.Duration(last)+keep/8
}

// sizeRetention is WEEK of part_entry.lua.
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

// ownedKind is held by one owner that writes, or by any number of owners that read.
type ownedKind struct {
	mode  string // ModeRead or ModeWrite
	owner string
}

// Owned returns the kind of a lock that an owner holds.
func Owned(mode, owner string) Kind { return ownedKind{mode, owner} }

func (k ownedKind) Label() string {
	if k.mode == ModeRead {
		return kindRead
	}
	return kindWrite
}

func (k ownedKind) stored(process string, number uint64, identity string) string {
	return ownedValue(k.mode, k.owner, process, number, identity)
}

func (ownedKind) Acquire(a *Attempt, mode string) wire.Request {
	extends := "" // the attempt itself, if an earlier request of it was applied
	if l := a.besides(); l != nil {
		a.beside, extends = l, l.a.value
	} else if a.beside != nil {
		extends = "-" // it may have the token of a lease that has ended
	}
	return a.c.scripts.ownedAcquire.Call(a.keys.argsWith(a.Tomb()), &a.value, &a.terms.ttlText, &a.terms.keepText, mode+" "+a.keys.channels, extends)
}

func (ownedKind) Renewal(a *Attempt) wire.Request {
	return a.c.scripts.ownedRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
}

func (ownedKind) Release(a *Attempt, withdraw bool) wire.Request {
	return a.releaseBy(a.c.scripts.ownedLeave, withdraw)
}

// slotKind is held by up to n attempts, each in a slot of its own.
type slotKind struct {
	n int // the size where none is stored
}

// Slots returns the kind of a Semaphore, whose size is n where none is stored.
func Slots(n int) Kind { return slotKind{n} }

func (slotKind) Label() string { return kindSemaphore }

func (slotKind) stored(process string, number uint64, identity string) string {
	return slotValue(process, number, identity)
}

func (k slotKind) Acquire(a *Attempt, mode string) wire.Request {
	return a.c.scripts.ownedAcquire.Call(append(a.keys.argsWith(a.Tomb()), a.keys.key("size")), &a.value, &a.terms.ttlText, &a.terms.keepText, mode+" "+a.keys.channels, "", k.n)
}

// Renewal extends the size, too, as that of a mutex does its counter of tokens.
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
	case v.slots:
		return slotKind{}
	case v.mode == "":
		return mutexKind{}
	}
	return ownedKind{v.mode, v.Owner}
}

// leaveArgs returns what a release needs for the queue. It includes whether the
// Client is closed, because a closed Client cannot check a grant that the script makes.
func (a *Attempt) leaveArgs() string {
	last := " 0 "
	a.c.mu.Lock()
	if a.c.closed {
		last = " 1 "
	}
	a.c.mu.Unlock()
	return a.terms.keepText + last + a.keys.channels
}

// releaseBy returns the request of a script that releases the attempt.
func (a *Attempt) releaseBy(s *wire.Script, withdraw bool) wire.Request {
	rest := a.leaveArgs()
	keys := a.keys.args()
	_, slots := a.kind.(slotKind)
	if slots || withdraw {
		keys = a.keys.argsWith(a.Tomb())
	}
	if slots {
		keys = append(keys, a.keys.key("size"))
	}
	if withdraw {
		return s.Call(keys, &a.value, rest, millis(a.TombTTL()))
	}
	return s.Call(keys, &a.value, rest)
}

func ownerOfAttempt(a *Attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

func (o owners) add(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	if !ok {
		return
	}
	of := o[key]
	if of == nil {
		of = &ownerLeases{all: map[*Lease]struct{}{}}
		o[key] = of
	}
	of.all[l] = struct{}{}
	of.newest = max(of.newest, l.token)
}

func (o owners) remove(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	of := o[key]
	if !ok || of == nil {
		return
	}
	if delete(of.all, l); len(of.all) == 0 {
		delete(o, key)
	}
}

// besides returns a valid lease of the attempt's owner that has its newest token, or nil: one that writes
// before one that reads, which keeps no token for a writer. It asks the
// leases, because their time can be over before anything has noticed it. A lease with an earlier token
// does not count, so that tokens do not go back to it.
func (a *Attempt) besides() (beside *Lease) {
	key, _ := ownerOfAttempt(a)
	c := a.c
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.owners[key]; of != nil {
		for l := range of.all {
			if l.token == of.newest && l.life.ErrAt(now) == nil && (beside == nil || l.a.kind.Label() == kindWrite) {
				beside = l
			}
		}
	}
	return beside
}

// isStale reports whether a token that was granted is that of a lease which has ended meanwhile, or an
// earlier one than that of the lease that it was to keep.
func (a *Attempt) isStale(token uint64) bool {
	l := a.beside
	return l != nil && (token < l.token || token == l.token && l.life.ErrAt(a.c.clock.Now()) != nil)
}
