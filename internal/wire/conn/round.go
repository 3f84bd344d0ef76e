package conn

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A round is the calls of one write that need replicas. WAIT covers every write of the round, as a replica
// acknowledges the writes in their order.
type round struct {
	want            int
	calls           []*call
	marks           []string
	within, longest time.Duration

	mu      sync.Mutex // as the pipe may end while a reply is settled
	left    int        // replies that are missing
	answers []Answer   // to the calls
	tail    []Answer   // to the marks and WAIT
}

// markTTL (ms) is how long the key of Command.Mark exists.
const markTTL = 1000

// join adds a call to a round, and returns the round. r may be nil.
func (r *round) join(c *call, want int, now time.Duration) *round {
	if r == nil {
		r = &round{want: want, within: c.command.Within}
	}
	r.calls, r.answers = append(r.calls, c), append(r.answers, Answer{})
	if c.command.Mark != "" {
		r.marks = append(r.marks, c.command.Mark)
	}
	r.within, r.longest = min(r.within, c.command.Within), max(r.longest, c.until-now)
	return r
}

// finish returns the commands that follow the calls: the marks and WAIT.
func (r *round) finish() (tail []Command) {
	for _, mark := range r.marks {
		tail = append(tail, plain("set", mark, "", "px", markTTL))
	}
	wait := max(1, min(r.within, r.longest/2).Milliseconds()) // 0 would be for ever; the rest is for the round trip
	tail = append(tail, plain("wait", r.want, wait))
	r.left = len(r.calls) + len(tail)
	return tail
}

// settle takes one reply. When all are there, they count if enough replicas have the writes, and are given to the calls.
func (r *round) settle(one reply, give func(*call, Answer)) {
	r.mu.Lock()
	if one.call == nil {
		r.tail = append(r.tail, one.Answer)
	} else {
		r.answers[slices.Index(r.calls, one.call)] = one.Answer
	}
	r.left--
	whole := r.left == 0
	r.mu.Unlock()
	if !whole {
		return
	}
	err := r.shortage()
	for i, c := range r.calls {
		if r.answers[i].Err == nil {
			r.answers[i].Err = err
		}
		give(c, r.answers[i])
	}
}

// shortage returns why the writes do not count, nil if enough replicas have them. A server that is demoted meanwhile
// refuses WAIT.
func (r *round) shortage() error {
	for _, a := range slices.Backward(r.tail) {
		var refused redis.Error
		switch {
		case errors.As(a.Err, &refused):
			return errors.Join(ErrNotReplicated, a.Err) // no right to it, or the server was demoted meanwhile
		case a.Err != nil:
			return a.Err
		}
	}
	if have, ok := r.tail[len(r.tail)-1].Value.(int64); !ok || have < int64(r.want) {
		return &notReplicatedError{r.want, have}
	}
	return nil
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
