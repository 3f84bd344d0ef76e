// Package lock is what holds a name. It acquires the locks of names, keeps their leases, and gives them
// back. lockcore shows it to users. The packages of elections, jobs and records use it directly: they
// bring scripts and kinds of their own. Nothing in it calls upwards, except the methods of a Kind.
//
// A Client is one lockcore.Client, a Name one name with the configuration of its leases, an Attempt one
// try to acquire it, and a Lease an attempt that was granted.
//
//	Name.Lock ─► wait.go ─► acquire.go ─► held.go    a free lock, or a place in the queue
//	                ▲           │           │
//	messages.go ────┘           ▼           ▼
//	"granted", "look"        release.go ◄───┘        all ways in which an attempt or a lease ends
//
// answer.go reads the answers of scripts, kind.go and value.go have what differs between a mutex and a
// lock with owners, and keys.go has the keys. With one server, alone.go decides. With a quorum, that is
// quorum.go: trying.go waits, votes.go counts answers, members.go admits servers, and clocks.go notices
// stepped clocks. name.go, queue.go, operators.go and rights.go have the requests of the packages above.
// open.go makes a Client, and options.go checks the go-redis client that its user gives.
//
// # Not guaranteed
//
// What lockcore does not guarantee, see there. Renewals and releases of a Kind are those of the package
// that brings it: this package sends and repeats them, and does not know what they do.
package lock
