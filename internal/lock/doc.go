// Package lock acquires, keeps and releases named locks. lockcore shows it to users. The packages of elections, jobs
// and records use it directly: they bring scripts and kinds of their own. It calls these packages only through the
// methods of a Kind.
//
// A Client is one lockcore.Client, a Name one name with the configuration of its leases, an Attempt one
// try to acquire it, and a Lease an attempt that was granted.
//
//	Name.Lock ─► wait.go ─► acquire.go ─► lease.go    a free lock, or a place in the queue
//	                ▲           │            │
//	messages.go ────┘           ▼            ▼
//	"granted", "check"       release.go ◄────┘         all ways in which an attempt or a lease ends
//
// client.go has the types. The six files above explain a lock. The other files support them: answer.go reads the
// answers of scripts, kind.go has the differences between a mutex and a lock with owners, keys.go has the keys and the
// stored values, and grant_check.go repeats a release whose grant was not confirmed. quorum.go decides with a majority
// of servers, which package members keeps. name.go, operators.go and rights.go have the requests of the packages
// above. open.go makes a Client, and target.go checks the go-redis client that its user gives.
//
// # Not guaranteed
//
// Package lockcore lists what is not guaranteed. The package that brings a Kind is responsible for the effect of its
// renewals and releases: this package only sends and repeats them.
package lock
