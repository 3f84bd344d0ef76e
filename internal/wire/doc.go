// Package wire sends requests to Redis and receives its messages. It knows one server; package conn below it
// knows one connection. internal/cluster and internal/several above it make one Wire of several servers. The packages
// above them know names, scripts and errors; they never name a server.
//
//	Send ─────────► Line    1 connection for calls, full duplex, and one for large answers while they are read
//	Renewals ─────► Line    1 for renewals. While there is none, they use that of the calls
//	Messages ─────► Pipe    1 for messages; a message is a hint that makes a caller check
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
// docs/ARCHITECTURE.md, "Inside a Client", says what happens after each failure.
package wire
