package cas

import "github.com/noonlock/noonlock/internal/lock"

// Names is the prefix of the names of records.
const Names = "clientgo/"

// keyOf returns the key of a record: a string, nr1 <version> <value>, with the TTL of its last
// write.
func keyOf(n *lock.Name) string { return n.Key("record") }
