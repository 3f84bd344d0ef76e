// Package cas implements the Redis side of a clientgo.Lock: a record that is written by
// compare-and-set. A write names the version that it replaces. It is refused if the record has
// another version. Only package clientgo uses this package.
//
// Of several writes that replace the same version, one succeeds, even if requests or replies
// are lost, late or repeated. A record does not survive a loss of the server's data: then a
// reader finds no record, and writes that replace a version are refused.
//
// On the server a record is the string <prefix>:{<name>}:record, which GET reads as
// "nr1 <version> <value>". The keys of a lock with the same name are separate.
package cas
