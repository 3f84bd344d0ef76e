package conn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// An acks contains the applied calls of a pipe that replicas must still acknowledge. After the calls of each write, the
// pipe sends a WAIT. It covers all earlier writes of the connection, and delays all later commands:
//
//   - Several WAITs may be in flight. Each one has half the time of the one before.
//   - After a WAIT with too few replicas, the calls that have time left wait for the next WAIT. Until a WAIT has enough
//     replicas, only one is in flight.
//
// The reply to WAIT contains no id, so it could belong to another command. It counts when the reply to the proof, the
// command after it, has arrived. pipe.mu guards an acks.
type acks struct {
	pending  []reply         // replies of the applied calls
	timeouts []time.Duration // timeouts of the WAITs in flight
	tooFew   bool            // the last WAIT had too few replicas
	count    int64           // replicas of the last WAIT
	err      error           // refusal of the last WAIT, or of its MarkKey
}

const (
	maxWaits = 6    // WAITs in flight
	markTTL  = 1000 // TTL of a MarkKey in ms
)

// mayWrite reports whether another write can wait for replicas.
func (a *acks) mayWrite() bool {
	return len(a.timeouts) == 0 || !a.tooFew && len(a.timeouts) < maxWaits
}

// needsWaitCommand reports whether pending calls need a WAIT and none is in flight.
func (a *acks) needsWaitCommand() bool { return len(a.pending) > 0 && len(a.timeouts) == 0 }

// A waitCommand is one of the commands that acks adds to a write.
type waitCommand struct {
	kind slotKind
	Command
}

// commands returns the commands after the calls of a write.
func (a *acks) commands(batch []*call, replicas int, now time.Duration) (list []waitCommand) {
	timeout, mark := time.Duration(math.MaxInt64), ""
	for _, c := range batch {
		timeout = min(timeout, c.command.ReplicaTimeout, (c.deadline-now)/2) // the other half is for the round trip
		mark = cmp.Or(mark, c.command.MarkKey)                               // one MarkKey is enough: WAIT covers all earlier writes
	}
	if len(a.timeouts) == 0 {
		for _, r := range a.pending {
			timeout = min(timeout, r.sent+r.call.command.ReplicaTimeout-now)
		}
	}
	timeout = max(timeout>>len(a.timeouts), time.Millisecond) // WAIT with 0 waits for ever
	a.timeouts = append(a.timeouts, timeout)
	if mark != "" {
		list = append(list, waitCommand{slotMark, Plain("set", mark, "", "px", markTTL)})
	}
	return append(list, waitCommand{slotWait, Plain("wait", replicas, timeout.Milliseconds())}, waitCommand{slotProof, proof})
}

// receive handles a reply to a command of the pipe itself. It returns the final answers of the calls that it decides.
// With last, the pipe sends no further WAIT. A refusal needs no proof: a server that is demoted during a WAIT refuses
// it and closes the connection.
func (a *acks) receive(r reply, replicas int, now time.Duration, last bool) (decided []reply) {
	if r.Err != nil && r.kind != slotAsking {
		a.err = r.Err
		for _, p := range a.pending {
			p.Err = errors.Join(ErrNotReplicated, a.err)
			decided = append(decided, p)
		}
		a.pending = nil
	}
	switch r.kind {
	case slotWait:
		a.count, _ = r.Value.(int64)
	case slotProof:
		last = last || now-r.sent < a.timeouts[0]/2 // the server or a proxy answers WAIT at once
		a.timeouts = a.timeouts[1:]
		a.tooFew = a.err != nil || a.count < int64(replicas)
		kept := a.pending[:0]
		for _, p := range a.pending {
			switch left := p.sent + p.call.command.ReplicaTimeout - now; {
			case !a.tooFew:
			case last || left < time.Millisecond:
				p.Err = &notReplicatedError{replicas, a.count}
			default:
				kept = append(kept, p)
				continue
			}
			decided = append(decided, p)
		}
		clear(a.pending[len(kept):])
		a.pending, a.err = kept, nil
	default:
	}
	return decided
}

// A notReplicatedError is ErrNotReplicated with the numbers of replicas.
type notReplicatedError struct {
	want int
	have int64
}

func (e *notReplicatedError) Error() string {
	return fmt.Sprintf("lockcore: not replicated: %d of %d replicas acknowledged the write in time", e.have, e.want)
}

func (e *notReplicatedError) Is(target error) bool { return target == ErrNotReplicated }
