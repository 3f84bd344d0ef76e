package input

import (
	"errors"
	"fmt"
)

// Operation wraps the errors of an operation on a name, of a lock, a job or an election, with both.
// It returns nil if there is none.
func Operation(room, op, name string, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %q: %w", room, op, name, err)
}
