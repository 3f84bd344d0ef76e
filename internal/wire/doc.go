// Package wire sends requests to Redis and receives its messages. It is the only package
// that knows servers and connections. The packages above it know names, scripts and
// errors; they never name a server.
//
// A Wire is what the packages above use. A topology is one file that implements it:
// server.go is one server. A topology decides which server a name is at; the rest of the
// package serves one server each:
//
//	Send ─► dispatcher ─► 4 connections; a request goes out at once on the caller's
//	                      goroutine while one is free, the others as one batch
//	Stream ────────────►  3 connections beside those, for batches of renewals
//	Subscription ──────►  1 connection; messages are hints that make a caller look
//
// # What it guarantees
//
//   - A call returns when its time is over, when its context ends, or when it is answered,
//     whatever the network, the server and the user's functions do (Dialer, OnConnect,
//     credentials providers).
//   - A request is sent at most once. If it is sent again, the caller does that: a Retry
//     calls a function for each try, which can read its own time before it sends.
//   - An error says whether the request may have been applied, see OutcomeOf.
//   - No pool of the application, and no retry or pause of go-redis, delays a request.
//
// # What it does not guarantee
//
//   - That a message arrives, arrives once, or was sent by this library.
//   - That a request that was broken off is not applied later. Scripts allow for that.
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
//	   └──── not answered in time, or broken off ──► Unknown
//
// # Failures
//
//	an answer is late             the connection is closed; those that were not answered
//	                              since the request was sent are made anew before use
//	a dial or TLS handshake hangs another one begins, up to 3; the request waits no
//	                              longer than its time
//	a user's function hangs or    it is left behind, and an error says which one; at most
//	panics                        3 calls of it run at a time
//	the server does not know a    the request is sent again, with the source of its script
//	script
//	the server is a replica       the connection is closed, so that the address is looked
//	(READONLY)                    up again; the subscription is made anew
//	the subscription fails        it is made anew with growing pauses; Config.Missed says
//	                              that messages may have been missed
//	the subscription is up and    a self-test fails: the count of receivers is not
//	carries nothing               trusted, and the connection is replaced
//	no certificate, password or   MayRetry is false, and so is IsTemporary
//	right
package wire
