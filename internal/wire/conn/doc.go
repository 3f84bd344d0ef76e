// Package conn sends commands over one connection to Redis, and makes the next connection after a failure.
// It has no notion of names, scripts or clusters.
//
//	Line    carries the calls of one purpose over its current pipe
//	pipe    carries the calls of many callers: one goroutine writes them, another one reads the replies
//	Dialer  makes Conns, with the user's Dialer and providers of credentials
//	Conn    is a connection that is set up, for one goroutine at a time
//	call    is one command of a caller
//
// Uses go down this list, except that a pipe reports its silence and its end to its Line.
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context ends. Neither the network
//     nor the user's functions delay this.
//   - A command is written at most once.
//   - A value belongs to its command: the reply to a named command repeats its id.
//   - A Stamp is a time before the kernel gets the first byte of the command.
//   - A silent server is noticed within a third of the shortest timeout, at most a second, but not before one and a half
//     round trips. Then new calls use another connection.
//
// # Not guaranteed
//
//   - That a written command is not applied later, after its caller has abandoned the call.
//   - That commands of two connections are applied in the order of their calls.
//   - That a refusal belongs to its command: it contains no id. If a faulty proxy delivers a refusal twice, another call
//     gets the second one. The next value has a wrong id, which closes the connection. This is harmless: after a refusal,
//     a caller treats the outcome as unknown.
//
// docs/ARCHITECTURE.md, "Inside a Client", says what happens after each failure.
package conn
