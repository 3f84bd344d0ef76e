package wire

import "errors"

// ErrNoQuorum says that too few of several servers could do what was requested. Some of them
// may have done it.
var ErrNoQuorum = errors.New("lockcore: no quorum")

// A NoQuorumError is ErrNoQuorum with the reasons.
type NoQuorumError struct {
	Text      string // without the package
	Of        []error
	Permanent bool // an operator must change something
	Answered  bool // a majority has answered, and grants nothing for now
}

func (e *NoQuorumError) Error() string { return "lockcore: no quorum: " + e.Text }

// Unwrap returns ErrNoQuorum and the errors of the servers.
func (e *NoQuorumError) Unwrap() []error { return append([]error{ErrNoQuorum}, e.Of...) }

// noQuorum returns the NoQuorumError of an error, nil if it has none.
func noQuorum(err error) *NoQuorumError {
	e, _ := errors.AsType[*NoQuorumError](err)
	return e
}
