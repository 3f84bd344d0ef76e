// Package bench measures noonlock beside other locks in the same run. Each library is used as
// its own documentation shows. make bench runs all rows. For a single one, in this directory:
//
//	GOWORK=off go test -run '^$' -bench Rows/handover -benchtime 1x .
//
// Each library has a server of its own. A repetition measures all of them in turn, so that
// other load of the machine affects all. The tables in docs/PERFORMANCE.md are replaced
// between the markers of each row.
//
// The directory is a module of its own, so that the dependencies of the other libraries do
// not raise those of noonlock.
package bench
