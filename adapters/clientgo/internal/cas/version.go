package cas

import (
	"slices"
	"strings"
)

const (
	// mostSeen limits the number of consecutive unanswered writes that a version covers.
	mostSeen = 64
	// noRecord is the version without a record.
	noRecord = "-"
)

// A Version is a version of a record. The zero value means that there is no record. After a
// write with an unknown outcome, it covers the versions before and after the write.
type Version struct {
	seen []string // nil: no record
}

// all returns the versions that v covers.
func (v Version) all() []string {
	if v.seen == nil {
		return []string{noRecord}
	}
	return v.seen
}

// String returns the version for logs and comparison. All writes have different versions. It is
// not secret.
func (v Version) String() string { return strings.Join(v.all(), "|") }

// Includes reports whether v covers all versions that o covers.
func (v Version) Includes(o Version) bool {
	return !slices.ContainsFunc(o.all(), func(version string) bool { return !slices.Contains(v.all(), version) })
}

// or returns a version that covers v and one more write.
func (v Version) or(version string) Version {
	seen := v.all()
	// The oldest ones are the least likely to be the current version.
	return Version{append(slices.Clone(seen[max(0, len(seen)+1-mostSeen):]), version)}
}
