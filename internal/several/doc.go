// Package several makes one wire.Wire of those of several independent servers, which share no data. It
// does not decide what was agreed: with each request, its caller gives a Count, which makes one answer
// of those of the servers. internal/quorum has the rules for that.
//
//	           ┌─► member ─► wire.Wire of server 0
//	request ───┼─► member ─► wire.Wire of server 1     answers ─► Count ─► one answer
//	           └─► member ─► wire.Wire of server 2
//	                 │
//	                 circuit: whether the server gets requests at present
//	                 Trail:   what the servers may have got of an attempt
//
// # Guarantees
//
//   - A request goes to all servers at once. Send returns as soon as its Count decides, so a server that
//     does not answer delays nobody while enough others do. Its answer is awaited in the background.
//   - A server that does not answer costs no dial: its requests fail at once, except for trials.
//   - An attempt is a series of requests with one Trail. The end of the attempt is sent, once, to each server
//     that may have got one of them, see Leaving. If one may still arrive there, it gets the form of the end for
//     that case.
//   - After Send has begun to end an attempt, no further request of it is sent.
//
// # Not guaranteed
//
//   - That all servers get a request, or that they get requests in the same order.
//   - That the end of an attempt arrives everywhere: a server may not answer, or Close may come first, unless
//     Drain has waited. What the end would have removed must expire.
//   - That messages arrive. They are hints.
//   - Scan: each server has other keys.
package several
