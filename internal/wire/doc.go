// Package wire sends requests to one Redis server and receives its messages. Package conn below it handles one
// connection. internal/cluster and internal/several above it make one Wire of several servers. The packages above them
// work with names, scripts and errors, and never name a server.
//
//	Send ─────────► Line    one connection for calls, full duplex, and one for large answers while they are read
//	Renewals ─────► Line    one for renewals, which use the calls' connection while there is none
//	Messages ─────► Conn    one for messages; a message is a hint that makes a caller check
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context ends. The timeout includes a
//     dial. The network, the server and the user's functions (Dialer, providers of credentials) cannot delay this.
//   - A request is applied at most once. Only its caller sends it again, with a Retry. A cluster also sends a request to
//     the node that a redirection names.
//   - OutcomeOf tells from an error whether the request may have been applied.
//   - No pool of the application, and no retry or pause of go-redis, delays a request.
//
// # Not guaranteed
//
//   - That a message arrives, arrives once, or was sent by this library.
//   - That an abandoned request is not applied later. Scripts allow for that.
//   - That requests of different connections are applied in the order of their calls.
//
// docs/ARCHITECTURE.md, "Inside a Client", says what happens after each failure.
package wire
