package lockcore

import "errors"

// Temporary reports whether the call that failed with err may succeed when it is
// made again: nobody answered, no connection was had, or the server said that it
// is loading, busy, read-only or failing over. It is false for what only an
// operator can change, such as rights, a password or memory, for a refused
// input, and for a Client that is closed.
//
// A call that was ended by its own context may be temporary, too: look at the
// context first.
func Temporary(err error) bool {
	return mayRetry(err) && !errors.Is(err, ErrClosed)
}
