// Package several makes one wire.Wire from several independent servers, which share no data. The rules of an agreement
// are not here: each request brings a Count, which makes one answer from the answers of the servers. Package members
// has the Counts, with the rules of internal/quorum.
//
//	           ┌─► member ─► wire.Wire of server 0
//	request ───┼─► member ─► wire.Wire of server 1     answers ─► Count ─► one answer
//	           └─► member ─► wire.Wire of server 2
//	                 │
//	                 circuit: stops requests to a server that does not answer
//	                 Trail:   records which servers may have got a request of an attempt
//
// # Guarantees
//
//   - A request goes to all servers at once. Send returns as soon as its Count decides, so a slow server delays nothing
//     while enough others answer. Its answer is awaited in the background.
//   - A server that does not answer costs no dial: its requests fail at once, except for trials.
//   - An attempt is a series of requests with one Trail. The request that ends it is made by Leaving, and is sent only
//     to servers that may have got an earlier request of the attempt. If an earlier request may still arrive at a
//     server, this server gets another end.
//   - After Send has begun to end an attempt, it sends no other request of the attempt.
//
// # Not guaranteed
//
//   - That all servers get a request, or that they get requests in the same order.
//   - That the end of an attempt arrives everywhere: a server may not answer, and Close does not wait for it. Drain
//     does. The keys that the end would have deleted must expire.
//   - That messages arrive. They are hints.
//   - Scan: each server has other keys.
package several
