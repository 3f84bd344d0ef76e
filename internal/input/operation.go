package input

import (
	"errors"
	"fmt"
)

// Operation wraps the errors of an operation of a package on a lock, a job or an election. Without errors, it returns
// nil.
func Operation(pkg, op, name string, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %q: %w", pkg, op, name, err)
}
