package lockcore

import "github.com/noonlock/noonlock/internal/wire"

// A kind says by which scripts an attempt is renewed and given back, and what the
// server stores for it.
type kind interface {
	name() string // as a label of metrics
	value(process string, number uint64, trusted bool, identity string) string
	// renewal answers 1 (extended) or 0 (lost).
	renewal(a *attempt) wire.Request
	// leave answers more than 0 (it was ours) or not (it was not). bury: with a
	// tombstone against requests of the attempt that are still under way.
	leave(a *attempt, bury bool) wire.Request
}

// A lineKind is one of whose attempts wait in line.
type lineKind interface {
	kind
	acquire(a *attempt, mode string) wire.Request
}

// mutexKind is held by one attempt at a time.
type mutexKind struct{}

func (mutexKind) name() string { return kindMutex }

func (mutexKind) value(process string, number uint64, trusted bool, identity string) string {
	return attemptValue(process, number, trusted, identity)
}

func (mutexKind) acquire(a *attempt, mode string) wire.Request {
	return a.c.scripts.mutexAcquire.Call(a.lineKeys(), a.value, millis(a.terms.ttl), mode, a.keepTokens())
}

func (mutexKind) renewal(a *attempt) wire.Request {
	return a.c.scripts.mutexRenew.Call([]string{a.keys.lock, a.keys.fence}, a.value, millis(a.terms.ttl), a.keepTokens())
}

func (mutexKind) leave(a *attempt, bury bool) wire.Request {
	return a.c.scripts.mutexLeave.Call(a.lineKeys(), a.value, a.buryIf(bury), a.keepTokens())
}

// ownedKind is held by owners: by one that writes, or by any number that read. A
// reentrant lock is one that is only written.
type ownedKind struct {
	letters string // reentrantKind or readWriteKind
	mode    string // modeRead or modeWrite
	owner   string
}

const (
	reentrantKind = "nx1"
	readWriteKind = "ns1"

	modeRead  = "r"
	modeWrite = "w"
)

func (k ownedKind) name() string {
	switch {
	case k.letters == reentrantKind:
		return kindReentrant
	case k.mode == modeRead:
		return kindRead
	}
	return kindWrite
}

func (k ownedKind) value(process string, number uint64, trusted bool, identity string) string {
	return ownedValue(k, process, number, trusted, identity)
}

func (ownedKind) acquire(a *attempt, mode string) wire.Request {
	s := a.c.scripts.ownedAcquire
	a.ended = a.c.endedToken(a)
	return s.Call(a.lineKeys(), a.value, millis(a.terms.ttl), mode, a.keepTokens(), a.ended)
}

func (ownedKind) renewal(a *attempt) wire.Request {
	return a.c.scripts.ownedRenew.Call([]string{a.keys.lock}, a.value, millis(a.terms.ttl))
}

func (ownedKind) leave(a *attempt, bury bool) wire.Request {
	return a.c.scripts.ownedLeave.Call(a.lineKeys(), a.value, a.buryIf(bury), a.keepTokens())
}

// lineKeys are the keys of a lock in the order in which the scripts take them.
func (a *attempt) lineKeys() []string {
	k := a.keys
	return []string{k.lock, k.fence, k.queue, k.seen, k.tomb(a.c.process, a.number)}
}

// keepTokens is how long (ms) the counter of tokens outlives the last grant.
func (a *attempt) keepTokens() int64 { return millis(a.terms.keepTokens) }

// buryIf is how long (ms) the tombstone stands; 0: none is wanted.
func (a *attempt) buryIf(bury bool) int64 {
	if !bury {
		return 0
	}
	return a.bury()
}
