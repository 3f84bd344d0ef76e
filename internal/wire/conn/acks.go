package conn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// An acks has the calls that were applied, and that replicas must acknowledge. Behind the calls of each write, WAIT is
// sent. It covers all earlier writes of the connection, and delays what is behind it:
//
//   - Several may be under way. Each one has half the time of the one before.
//   - When one counts too few replicas, the calls whose time is not over wait for the next one. Until one counts enough,
//     one is under way.
//
// The count is a reply that names nothing. It counts when the reply to the command behind it names that. Pipe.mu guards an acks.
type acks struct {
	pending []reply
	times   []time.Duration // of each WAIT under way
	short   bool            // the last one counted too few replicas
	count   int64           // counted by the last one
	err     error           // refusal of the last one, or of its mark
}

// maxWaits limits the WAITs that are under way.
const maxWaits = 6

// markTTL (ms) is how long the key of Command.Mark exists.
const markTTL = 1000

// mayWrite reports whether another write can wait for replicas.
func (a *acks) mayWrite() bool {
	return len(a.times) == 0 || !a.short && len(a.times) < maxWaits
}

// wantsWait reports whether calls need another WAIT.
func (a *acks) wantsWait() bool { return len(a.pending) > 0 && len(a.times) == 0 }

// An ownCommand is a command of the Pipe itself.
type ownCommand struct {
	kind slotKind
	Command
}

// commands returns what follows the calls of a write.
func (a *acks) commands(batch []*call, want int, now time.Duration) (list []ownCommand) {
	within, mark := time.Duration(math.MaxInt64), ""
	for _, c := range batch {
		within = min(within, c.command.Within, (c.until-now)/2) // the rest is for the round trip
		mark = cmp.Or(mark, c.command.Mark)                     // one write moves the replication offset past all others
	}
	if len(a.times) == 0 {
		for _, r := range a.pending {
			within = min(within, r.sent+r.call.command.Within-now)
		}
	}
	within = max(within>>len(a.times), time.Millisecond) // 0 would be for ever
	a.times = append(a.times, within)
	if mark != "" {
		list = append(list, ownCommand{slotMark, Plain("set", mark, "", "px", markTTL)})
	}
	return append(list, ownCommand{slotWait, Plain("wait", want, within.Milliseconds())}, ownCommand{slotProof, proof})
}

// take takes a reply to a command of its own, and returns the answers that are final. last says that no further WAIT is
// sent. A refusal needs no proof: a server that is demoted meanwhile refuses WAIT, and closes the connection.
func (a *acks) take(r reply, want int, now time.Duration, last bool) (final []reply) {
	if r.Err != nil && r.kind != slotAsking {
		a.err = r.Err
		for _, one := range a.pending {
			one.Err = errors.Join(ErrNotReplicated, a.err)
			final = append(final, one)
		}
		a.pending = nil
	}
	switch r.kind {
	case slotWait:
		a.count, _ = r.Value.(int64)
	case slotProof:
		last = last || now-r.sent < a.times[0]/2 // the server does not wait at all
		a.times = a.times[1:]
		a.short = a.err != nil || a.count < int64(want)
		kept := a.pending[:0]
		for _, one := range a.pending {
			switch left := one.sent + one.call.command.Within - now; {
			case !a.short:
			case last || left < time.Millisecond:
				one.Err = &notReplicatedError{want, a.count}
			default:
				kept = append(kept, one)
				continue
			}
			final = append(final, one)
		}
		clear(a.pending[len(kept):])
		a.pending, a.err = kept, nil
	default:
	}
	return final
}

// notReplicatedError is ErrNotReplicated with the numbers.
type notReplicatedError struct {
	want int
	have int64
}

func (e *notReplicatedError) Error() string {
	return fmt.Sprintf("lockcore: not replicated: %d of %d replicas acknowledged the write in time", e.have, e.want)
}

func (e *notReplicatedError) Is(target error) bool { return target == ErrNotReplicated }
