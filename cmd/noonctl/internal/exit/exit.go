// Package exit has the exit codes of noonctl, and the errors that end it with one of them.
package exit

import "fmt"

// The exit codes. 64 to 77 are from sysexits.h, and 126 to 130 are a shell's, so that they differ from the
// codes of most commands that run and elect start.
const (
	Done        = 0
	Failed      = 1
	Misuse      = 64
	Missing     = 66
	NoAnswer    = 69
	NotAcquired = 75
	Lost        = 76
	Forbidden   = 77
	NotRunnable = 126
	NotFound    = 127
	Interrupted = 130
)

// An Error ends the program with a code. Without Err, it prints nothing.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprint("exit code ", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usage returns the error of a wrong argument or flag.
func Usage(err error) error { return &Error{Misuse, err} }
