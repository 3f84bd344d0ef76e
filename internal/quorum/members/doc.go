// Package members keeps the servers of a quorum: it lets them in, counts their answers, and watches their clocks.
// Package quorum has the rules, and the scripts quorum_state and quorum_join apply them, so any number of clients may
// do this at the same time.
//
// A Quorum examines its servers before the first request, and when a server has answered that it is no member. So
// it costs nothing while all servers are members. A client that acquires no locks lets no server in.
//
//	members.go ─► examine.go ─► report.go, clocks.go, metrics.go     count.go: one answer from those of all servers
package members
