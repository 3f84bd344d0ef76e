package lock

import (
	"strconv"
	"strings"
)

// The tags of the values of locks with owners and of Semaphores.
const (
	OwnedTag     = "ns1"
	SemaphoreTag = "np1"
)

// The modes in which an owner holds a lock.
const (
	ModeRead  = "r"
	ModeWrite = "w"
)

// attemptValue returns the value of an attempt at the server: the process, the
// attempt's number and the identity. Only the identity may be shown.
func attemptValue(process string, number uint64, identity string) string {
	return attemptText("nl1:", process, number, "/"+identity)
}

// ownedValue returns an attemptValue with the mode and the owner. The space after the
// owner is unambiguous, as an owner contains none.
func ownedValue(mode, owner, process string, number uint64, identity string) string {
	return attemptText(OwnedTag+":", process, number, "."+mode+"/"+owner+" "+identity)
}

// slotValue returns an ownedValue of a Semaphore, whose entries have one owner.
func slotValue(process string, number uint64, identity string) string {
	return attemptText(SemaphoreTag+":", process, number, ".p/- "+identity)
}

// A Value is the content of a stored value.
type Value struct {
	Identity string
	Owner    string // "" for a mutex and a Semaphore
	mode     string // ModeRead or ModeWrite; "" for a mutex and a Semaphore
	slots    bool   // whether it is of a Semaphore
	process  string
	number   uint64
}

// Reads reports whether the attempt is for reading.
func (v Value) Reads() bool { return v.mode == ModeRead }

// ReadValue parses a stored value. ok is false for a text that this library has not written.
func ReadValue(value string) (v Value, ok bool) {
	tag, body, _ := strings.Cut(value, ":")
	head, identity, found := strings.Cut(body, "/")
	parts := strings.Split(head, ".")
	switch {
	case !found:
		return Value{}, false
	case tag == "nl1" && len(parts) == 2:
		v.Identity = identity
	case tag == SemaphoreTag && len(parts) == 3:
		v.slots, v.Identity = true, strings.TrimPrefix(identity, "- ")
	case tag == OwnedTag && len(parts) == 3:
		owner, shown, found := strings.Cut(identity, " ")
		if !found {
			return Value{}, false
		}
		v.mode, v.Owner, v.Identity = parts[2], owner, shown
	default:
		return Value{}, false
	}
	number, err := strconv.ParseUint(parts[1], 36, 64)
	if err != nil {
		return Value{}, false
	}
	v.process, v.number = parts[0], number
	return v, true
}
