// Package conn sends commands over one connection to Redis, and makes the next connection after a failure.
// It knows neither names nor scripts, and does not know whether the server is one of a cluster.
//
//	Line    carries the calls of one purpose, over the present Pipe
//	Pipe    is a connection that is set up: calls are written while others wait for their answers
//	Dialer  makes connections, with the user's Dialer and providers of credentials
//
// # States of a call
//
//	called ──► waits for a pipe ──► queued ──► written ──► answered
//	                │                 │           │
//	                │ its caller leaves, or no    │ its caller leaves, or the pipe ends
//	                ▼ connection can be made      ▼
//	            UnsentError                  ErrUnknown
//
// A call that is queued when its pipe ends goes to the next one. Close ends it with ErrClosed.
//
// # Guarantees
//
//   - A call returns when it is answered, when its timeout has passed, or when its context ends. Neither the network
//     nor the user's functions delay this.
//   - A command is written at most once.
//   - An answer belongs to its command. The reply to a named command repeats its id. Another reply counts once that
//     of a later named command is right.
//   - Stamp has a time before the first byte of the command was given to the kernel.
//
// # Not guaranteed
//
//   - That a command which was written is not applied later, after its caller has left.
//   - That commands of two connections are applied in the order of their calls.
//
// # Failures
//
//	nothing is answered for long  another connection is made, and takes the new calls. The first one is
//	                              read until its callers have left. If the server answers on it before
//	                              that, the calls go on there. It is ended if the new one leads to another
//	                              address
//	a dial or TLS handshake hangs another one begins, up to 3; the call waits no longer than its time
//	the server closes a connection what was written is unknown; what was not goes to the next one
//	a user's function hangs or    it is abandoned, and an error names it; at most 3 calls of
//	panics                        it run at a time
//	a reply is late, or that to   its id is not that of the command. The outcome is unknown, and the
//	another command               connection is closed
//	a reply has over 16 MiB       the same
package conn
