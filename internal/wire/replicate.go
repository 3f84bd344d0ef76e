package wire

import (
	"errors"
	"fmt"
	"slices"
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
