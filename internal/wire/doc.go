// Package wire sends requests to Redis and receives its messages. It is the only package
// that knows servers and connections. The packages above it know names, scripts and
// errors; they never name a server.
//
// The packages above use the interface Wire. One file implements it for each topology:
// server.go for one server, cluster.go for a Redis Cluster, and quorum.go for several independent servers. Below them
// is what works with one server:
//
//	Send ─────────► line ─► pipe   1 connection for calls, full duplex
//	Renewals ─────► line ─► pipe   1 for renewals. While there is none, they use that of the calls
//	Messages ─────────────► pipe   1 for messages; a message is a hint that makes a caller check
//
// A pipe is a connection (pipe.go), which dial.go and setup.go make ready. A line (line.go) has the present pipe of one
// purpose, and makes the next one. If the server is silent on a pipe, there is a second one beside it.
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context
//     ends. The timeout covers everything, a dial included. The network, the server and the user's
//     functions (Dialer, providers of credentials) cannot delay this.
//   - A request is applied at most once. Only its caller sends it again, with a Retry. It
//     calls a function for each try, which can read the clock before it sends. A cluster also
//     sends a request to the node that a redirection names.
//   - An error says whether the request may have been applied, see OutcomeOf.
//   - No pool of the application, and no retry or pause of go-redis, delays a request.
//
// # Not guaranteed
//
//   - That a message arrives, arrives once, or was sent by this library.
//   - That a request that was abandoned is not applied later. Scripts are written for that.
//   - That requests of different connections are applied in the order of their calls.
//
// # States of a request
//
//	called ──► waits for a pipe ──► queued ──► written ──► answered: Applied, Refused or Moved
//	                │                 │           │
//	                │ its caller leaves, or no    │ its caller leaves, or the pipe ends
//	                ▼ connection can be made      ▼
//	              Unsent                        Unknown
//
// A request that is queued when its pipe ends goes to the next one.
//
// # Failures
//
//	nothing is answered for long  another connection is made, and takes the new calls. The old one is
//	                              read until its callers have left
//	a dial or TLS handshake hangs another one begins, up to 3; the request waits no
//	                              longer than its time
//	the server closes a connection what was written is unknown; what was not goes to the next one
//	credentials change            the next call uses a new connection
//	a user's function hangs or    it is abandoned, and an error names it; at most 3 calls of
//	panics                        it run at a time
//	the server does not know a    the request is sent again, with the source of its script
//	script
//	a reply is late, or that to   its id is not that of the request. The outcome is unknown, and the
//	another request               connection is closed
//	the server is a replica       the connection is closed, or not made, so that the address
//	(READONLY, HELLO, or MOVED    is looked up again; the subscription is replaced
//	outside a cluster)
//	the Sentinels name another    noticed by a dial per second; all connections are replaced, and
//	primary                       Config.Moved is called
//	a slot moves                  its names are at another server, and Config.Relocated is called
//	the server misses replicas    at most once per second, the connection is closed, so that
//	(NOREPLICAS)                  the address is looked up again. The subscription and the
//	                              other connections are closed, too
//	the server may have lost data with Config.Delay, a new connection finds that before its first
//	                              request. Requests that may grant a lease are not sent for a time
//	a connection is replaced      the subscription is tested: it may be at another server
//	the subscription fails        it is made again after growing pauses; Config.Missed is
//	                              called, because messages may have been missed
//	the subscription is up but    a self-test fails: the count of receivers is not
//	delivers nothing              trusted, and the connection is replaced
//	a certificate, password or    MayRetry and IsTemporary are false
//	right is wrong or missing
package wire
