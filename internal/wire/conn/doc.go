// Package conn sends commands over one connection to Redis, and makes the next connection after a failure.
// It knows neither names nor scripts, and does not know whether the server is one of a cluster.
//
//	Line    carries the calls of one purpose, over the present Pipe
//	Dialer  makes Pipes, with the user's Dialer and providers of credentials
//	Pipe    is a connection that is set up: one goroutine writes calls, another one reads their replies
//	call    has the states of a command on its way
//
// Uses go down this list. A Pipe tells its Line of silence and of its end.
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context ends. Neither the network
//     nor the user's functions delay this.
//   - A command is written at most once.
//   - A value belongs to its command: the reply to a named command repeats its id.
//   - Stamp has a time before the first byte of the command was given to the kernel.
//   - A server that does not answer is noticed within a second, or a third of the shortest timeout, or one and a half
//     times the usual round trip, if that is more. Then new calls use another connection.
//
// # Not guaranteed
//
//   - That a command which was written is not applied later, after its caller has left.
//   - That commands of two connections are applied in the order of their calls.
//   - That a refusal belongs to its command: it names nothing. If a faulty proxy delivers a refusal twice, one other
//     call gets it. The next value does not have its id, and the connection is closed. That harms nobody: a refusal says
//     nothing about what was written, so its caller treats the outcome as unknown.
//
// docs/ARCHITECTURE.md, "Inside a Client", says what happens after each failure.
package conn
