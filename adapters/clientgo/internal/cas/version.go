package cas

import (
	"cmp"
	"strings"
)

const (
	// mostSeen limits the number of consecutive unanswered writes that a version covers.
	mostSeen = 64
	// noRecord is the version without a record.
	noRecord = "-"
)

// A Version is a version of a record. The zero value means that there is no record. After a
// write with an unknown outcome, it covers the versions before and after the write. All writes have
// different versions.
type Version struct{ seen string } // with spaces in between

// String returns the version for logs. It is not secret.
func (v Version) String() string { return cmp.Or(v.seen, noRecord) }

// Includes reports whether v covers all versions that o covers.
func (v Version) Includes(o Version) bool {
	for version := range strings.FieldsSeq(o.String()) {
		if !strings.Contains(v.inSpaces(), " "+version+" ") {
			return false
		}
	}
	return true
}

func (v Version) inSpaces() string { return " " + v.String() + " " }

// or returns a version that covers v and one more write.
func (v Version) or(version string) Version {
	seen := append(strings.Fields(v.String()), version)
	return Version{strings.Join(seen[max(0, len(seen)-mostSeen):], " ")} // the oldest ones are the least likely
}
