// Package bench measures noonlock beside other locks in the same run. Each library is used as
// its own documentation shows. make bench runs all rows. For a single one, in this directory:
//
//	GOWORK=off go test -run '^$' -bench Rows/handover -benchtime 1x .
//
// Each library has a server of its own. A repetition measures all of them in turn, so that
// other load of the machine affects all.
package bench
