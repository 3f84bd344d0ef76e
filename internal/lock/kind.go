package lock

import (
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// mutexKind is held by one attempt at a time.
type mutexKind struct{}

func (mutexKind) Label() string { return kindMutex }

func (mutexKind) stored(process string, number uint64, trusted bool, identity string) string {
	return attemptValue(process, number, trusted, identity)
}

func (mutexKind) Acquire(a *Attempt, mode string) wire.Request {
	return a.c.scripts.mutexAcquire.Call(a.keys.argsWith(a.Tomb()), &a.value, &a.terms.ttlText, &a.terms.keepText, mode+" "+a.keys.channels)
}

// Renewal extends the counter of tokens, too, at first and then after each eighth of the time for which
// that is kept.
func (mutexKind) Renewal(a *Attempt) wire.Request {
	if !a.extendsCounter(a.c.clock.Now()) {
		return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock}, &a.value, &a.terms.ttlText)
	}
	return a.c.scripts.mutexRenew.Call([]any{&a.keys.lock, &a.keys.fence}, &a.value, &a.terms.ttlText, &a.terms.keepText)
}

// extendsCounter reports whether a renewal at that time extends the counter of tokens.
func (a *Attempt) extendsCounter(now time.Duration) bool {
	last := a.keptAt.Load()
	return last == 0 || now >= time.Duration(last)+a.terms.keep/8
}

func (mutexKind) Release(a *Attempt, withdraw bool) wire.Request {
	return a.releaseBy(a.c.scripts.mutexLeave, withdraw)
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

func (k ownedKind) stored(process string, number uint64, trusted bool, identity string) string {
	return ownedValue(k.mode, k.owner, process, number, trusted, identity)
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

// kindOf returns the kind of a stored value.
func kindOf(v Value) Kind {
	if v.mode == "" {
		return mutexKind{}
	}
	return ownedKind{v.mode, v.Owner}
}

// releaseBy returns the request of a script that releases the attempt. It includes whether the
// Client is closed, because a closed Client cannot check a grant that the script makes.
func (a *Attempt) releaseBy(s *wire.Script, withdraw bool) wire.Request {
	last := " 0 "
	a.c.mu.Lock()
	if a.c.closed {
		last = " 1 "
	}
	a.c.mu.Unlock()
	rest := a.terms.keepText + last + a.keys.channels
	if record, news := a.unbegun(); record != "" {
		return s.Call(append(a.keys.argsWith(a.Tomb()), record), &a.value, rest, millis(a.TombTTL()), news)
	}
	if withdraw {
		return s.Call(a.keys.argsWith(a.Tomb()), &a.value, rest, millis(a.TombTTL()))
	}
	return s.Call(a.keys.args(), &a.value, rest)
}
