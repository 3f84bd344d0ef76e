package lockcore

import (
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A kind defines the scripts that renew and release an attempt, and the value that the
// server stores for it.
type kind interface {
	name() string // the label in metrics
	value(process string, number uint64, trusted bool, identity string) string
	// renewal returns a request whose reply is 1 (extended) or 0 (lost).
	renewal(a *attempt) wire.Request
	// leave returns a request whose reply is greater than 0 if the attempt held the lock.
	// With withdraw it also writes a tombstone. Requests of the attempt that arrive later
	// then fail.
	leave(a *attempt, withdraw bool) wire.Request
}

// A queueKind is a kind whose attempts can queue.
type queueKind interface {
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
	return a.c.scripts.mutexAcquire.Call(a.keyArgs, a.valueArg, a.terms.ttlArg, mode, a.terms.keepArg, a.keys.channelsArg)
}

func (mutexKind) renewal(a *attempt) wire.Request {
	return a.c.scripts.mutexRenew.Call(a.keyArgs[:2], a.valueArg, a.terms.ttlArg, a.terms.keepArg)
}

func (mutexKind) leave(a *attempt, withdraw bool) wire.Request {
	return a.leaveBy(a.c.scripts.mutexLeave, withdraw)
}

// ownedKind is held by one owner that writes, or by any number of owners that read.
type ownedKind struct {
	mode  string // modeRead or modeWrite
	owner string
}

const (
	ownedTag = "ns1" // of stored values

	modeRead  = "r"
	modeWrite = "w"
)

func (k ownedKind) name() string {
	if k.mode == modeRead {
		return kindRead
	}
	return kindWrite
}

func (k ownedKind) value(process string, number uint64, trusted bool, identity string) string {
	return ownedValue(k, process, number, trusted, identity)
}

func (ownedKind) acquire(a *attempt, mode string) wire.Request {
	s := a.c.scripts.ownedAcquire
	a.endedToken = a.c.endedToken(a)
	return s.Call(a.keyArgs, a.valueArg, a.terms.ttlArg, mode, a.terms.keepArg, a.endedToken, a.keys.channelsArg)
}

func (ownedKind) renewal(a *attempt) wire.Request {
	return a.c.scripts.ownedRenew.Call(a.keyArgs[:1], a.valueArg, a.terms.ttlArg)
}

func (ownedKind) leave(a *attempt, withdraw bool) wire.Request {
	return a.leaveBy(a.c.scripts.ownedLeave, withdraw)
}

// tombTTL returns the TTL of the attempt's tombstone.
func (a *attempt) tombTTL() time.Duration { return max(a.terms.ttl, tombTTL) }

// leaveBy returns the request of a script that releases the attempt. It includes whether the
// Client is closed, because a closed Client cannot check a grant that the script makes.
func (a *attempt) leaveBy(s *wire.Script, withdraw bool) wire.Request {
	tomb, last := int64(0), "0"
	if withdraw {
		tomb = millis(a.tombTTL())
	}
	a.c.mu.Lock()
	if a.c.closed {
		last = "1"
	}
	a.c.mu.Unlock()
	return s.Call(a.keyArgs, a.valueArg, tomb, a.terms.keepArg, last, a.keys.channelsArg)
}

// The modes of mutex_acquire and owned_acquire. An attempt that joins again sends its place
// as the mode.
const (
	modeTry  = "try"  // do not queue
	modeJoin = "join" // queue
	modeLook = "look" // check an attempt that is in the queue
)

// The answers of mutex_acquire and owned_acquire.
const (
	answerHeld = iota + 1
	answerHead
	answerQueued
	answerBusy
	answerNotQueued
	answerWithdrawn
	answerWrongKind
	answerUpgrade
)

type acquireReply struct {
	grant  // held
	code   int64
	left   time.Duration // head, queued, busy; negative: no TTL
	place  string        // head, queued
	holder string        // head, queued, busy; empty: none
}

// unswept is the value of left for a free lock with a queue. One call removes only a limited
// number of dead waiters, and the next call continues.
const unswept = -2 * time.Millisecond

func readAcquire(answer any) (r acquireReply, ok bool) {
	list, _ := answer.([]any)
	if len(list) == 0 {
		return r, false
	}
	code, _ := list[0].(int64)
	r.code = code
	switch {
	case code == answerHeld && len(list) == 2:
		token, err := strconv.ParseUint(wire.Text(list[1]), 10, 64)
		r.token = token
		return r, err == nil && token > 0
	case code == answerBusy && len(list) == 3, (code == answerHead || code == answerQueued) && len(list) == 4:
		left, isInt := list[1].(int64)
		r.left, r.holder = time.Duration(left)*time.Millisecond, wire.Text(list[len(list)-1])
		if code != answerBusy {
			r.place = wire.Text(list[2])
		}
		return r, isInt
	case code >= answerNotQueued && code <= answerUpgrade && len(list) == 1:
		return r, true
	}
	return r, false
}
