// Package wire sends requests to Redis and receives its messages. It is the only package
// that knows servers and connections. The packages above it know names, scripts and
// errors; they never name a server.
//
// A Wire is what the packages above use. A topology is one file that implements it:
// server.go is one server, and cluster.go a Redis Cluster. A topology decides which server a
// name is at; the rest of the package serves one server each:
//
//	Send ─► dispatcher ─► 4 connections. While one is free, a request is sent at once on
//	                      its caller's goroutine. Queued requests are sent as a batch
//	Stream ────────────►  3 separate connections, for batches of renewals
//	Subscription ──────►  1 connection; a message is a hint that makes a caller check
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context
//     ends. The network, the server and the user's functions (Dialer, OnConnect, credentials
//     providers) cannot delay this.
//   - A request is applied at most once. Only its caller sends it again: a Retry calls a
//     function for each try, which can read the clock before it sends. A cluster also sends
//     it to the node that a redirection names.
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
//	            no connection is free            context or time ends
//	called ───────────────────────────► queued ──────────────────────► Unsent or Ended
//	   │                                  │
//	   │ a connection is free             │ the next batch
//	   ▼                                  ▼
//	connecting ◄──────────────────────────┘
//	   │        no connection is made, or setting it up is refused ──► Unsent
//	   ▼
//	sent ─── answered ──► Applied, Refused or Moved
//	   └──── not answered in time, or abandoned ──► Unknown
//
// # Failures
//
//	an answer is late             the connection is closed. Connections that have not answered
//	                              since then are replaced before their next use
//	a dial or TLS handshake hangs another one begins, up to 3; the request waits no
//	                              longer than its time
//	a user's function hangs or    it is abandoned, and an error names it; at most 3 calls of
//	panics                        it run at a time
//	the server does not know a    the request is sent again, with the source of its script
//	script
//	the server is a replica       the connection is closed, or not made, so that the address
//	(READONLY, HELLO, or MOVED    is looked up again; the subscription is replaced
//	outside a cluster)
//	the server misses replicas    at most once per second, the connection is closed, so that
//	(NOREPLICAS)                  the address is looked up again; so are the subscription and
//	                              the other connections
//	a connection is replaced      the subscription is tested, as it may be to another server
//	the subscription fails        it is made again with growing pauses; Config.Missed
//	                              reports that messages may have been missed
//	the subscription is up and    a self-test fails: the count of receivers is not
//	carries nothing               trusted, and the connection is replaced
//	no certificate, password or   MayRetry is false, and so is IsTemporary
//	right
package wire
