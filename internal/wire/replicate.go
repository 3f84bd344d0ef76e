package wire

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrNotReplicated says that a request was applied, and that too few replicas acknowledged it
// in time.
var ErrNotReplicated = errors.New("lockcore: not replicated")

// notReplicatedError is ErrNotReplicated with the numbers.
type notReplicatedError struct {
	want int
	have int64
}

func (e *notReplicatedError) Error() string {
	return fmt.Sprintf("lockcore: not replicated: %d of %d replicas acknowledged the write in time", e.have, e.want)
}

func (e *notReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// markTTL (ms) is how long the key of Request.Marked exists.
const markTTL = 1000

// replicate sends requests in one round trip. If they need replicas, one WAIT follows them all.
// It covers every write of the batch, as a replica acknowledges the writes in their order.
func replicate(d *deadline, l *connection, requests []Request, wanted func(i int) bool) []Answer {
	n, want := len(requests), requests[0].replicas // of all: see group
	refusal := refusals(l.history, requests, wanted)
	if want == 0 {
		return l.do(d, requests, refusal)
	}
	var within time.Duration
	commands := slices.Clone(requests)
	for _, r := range requests {
		if r.within > 0 && (within == 0 || r.within < within) {
			within = r.within
		}
		if r.mark != "" {
			commands = append(commands, Command("set", r.mark, "", "px", markTTL))
		}
	}
	if until, ok := d.Deadline(); ok {
		within = min(within, time.Until(until)/2) // the rest is for the round trip
	}
	commands = append(commands, Command("wait", want, max(1, within.Milliseconds()))) // 0 would be for ever
	some := refusal
	if refusal != nil {
		sent := false
		some = func(i int) (err error) {
			switch {
			case i < n:
				err = refusal(i)
				sent = sent || err == nil
			case !sent:
				err = &unsentError{errDropped} // nothing to wait for
			}
			return err
		}
	}
	answers := l.do(d, commands, some)
	if err := shortage(answers[n:], want); err != nil {
		if l.role.isCutOff(err) {
			l.leave()
		}
		for i, a := range answers[:n] {
			if a.Err == nil {
				answers[i].Err = err
			}
		}
	}
	return answers[:n]
}

// refusals returns why a request is not sent once the connection is ready: its caller has
// dropped it, or it may grant a lease during a delay. nil means that all are sent.
func refusals(h *history, requests []Request, wanted func(i int) bool) func(i int) error {
	if h == nil && wanted == nil {
		return nil
	}
	return func(i int) error {
		if requests[i].grants {
			if err := h.refusal(); err != nil {
				return err
			}
		}
		if wanted != nil && !wanted(i) {
			return &unsentError{errDropped}
		}
		return nil
	}
}

// shortage returns why the writes of a batch do not count, nil if enough replicas have them.
// The answers are those to the marks and to WAIT. A server that is demoted meanwhile refuses WAIT.
func shortage(answers []Answer, want int) error {
	for _, a := range slices.Backward(answers) {
		switch {
		case a.Err != nil && IsRefused(a.Err):
			return errors.Join(ErrNotReplicated, a.Err) // no right to it, or the server was demoted meanwhile
		case a.Err != nil:
			return a.Err
		}
	}
	if have, ok := answers[len(answers)-1].Value.(int64); !ok || have < int64(want) {
		return &notReplicatedError{want, have}
	}
	return nil
}
