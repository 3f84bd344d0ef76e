package lock

import (
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// The modes of mutex_acquire and owned_acquire. An attempt that joins again sends its score in the queue as the mode.
const (
	modeTry   = "try"  // do not queue
	modeJoin  = "join" // queue
	modeCheck = "look" // check an attempt that is in the queue
)

// The codes with which the answers of mutex_acquire and owned_acquire begin. The answer to a grant is the token
// instead, or answerSlot for a Semaphore. readAcquire returns answerHeld for both.
const (
	answerHeld = iota + 1
	answerHead
	answerQueued
	answerBusy
	answerNotQueued
	answerWithdrawn
	answerWrongKind
	answerUpgrade
	answerSlot
)

// A grant is an answer of the server that grants a lease.
type grant struct {
	token uint64        // zero without a grant
	slot  int           // slot of a Semaphore, -1 if its entry has ended
	size  int           // number of a Semaphore's slots
	t0    time.Duration // time just before the request was sent

	unreplicated error // ErrNotReplicated if too few replicas have the grant
}

// An acquireReply is an answer of mutex_acquire or owned_acquire.
type acquireReply struct {
	grant  // held
	code   int64
	left   time.Duration // head, queued, busy: remaining TTL, negative without one
	score  string        // head, queued
	holder string        // head, queued, busy: value of the holder
}

// unswept is the value of left for a free lock with a queue: one call removes only a limited number of
// dead waiters. So the acquire must be sent again at once.
const unswept = -2 * time.Millisecond

// isGrant reports whether an answer of mutex_acquire or owned_acquire is a grant.
func isGrant(answer any) bool {
	r, ok := readAcquire(answer)
	return ok && r.code == answerHeld
}

func readAcquire(answer any) (r acquireReply, ok bool) {
	if text, ok := answer.(string); ok {
		token, err := strconv.ParseUint(text, 10, 64)
		r.code, r.token = answerHeld, token
		return r, err == nil && token > 0
	}
	list, _ := answer.([]any)
	if len(list) == 0 {
		return r, false
	}
	code, _ := list[0].(int64)
	r.code = code
	switch {
	case code == answerSlot && len(list) == 4:
		r, ok = readAcquire(wire.Text(list[1]))
		slot, isInt := list[2].(int64)
		size, _ := list[3].(int64)
		r.slot, r.size = int(slot), int(size)
		return r, ok && isInt && slot >= -1 && size > 0
	case code == answerBusy && len(list) == 3, (code == answerHead || code == answerQueued) && len(list) == 4:
		left, isInt := list[1].(int64)
		r.left, r.holder = time.Duration(left)*time.Millisecond, wire.Text(list[len(list)-1])
		if code != answerBusy {
			r.score = wire.Text(list[2])
		}
		return r, isInt
	case code >= answerNotQueued && code <= answerUpgrade && len(list) == 1:
		return r, true
	}
	return r, false
}
