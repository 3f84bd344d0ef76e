// Package quorum has the rules of locks on a majority of independent servers: how their
// answers count, and which servers may be let in. It is pure: it has neither Redis nor time.
// lockcore sends the requests, and test/explorer explores the scripts together with these
// rules.
//
// # Servers
//
// A server counts as a member while it runs with the data that it had when it was let in. Its
// marker key has the run id of that time. So a server that restarted is noticed, even with an
// old copy of its data, and so is one whose data was deleted.
//
//	           quorum_state            a majority of other members is known: Join
//	lost ─────────────────► returning ─────────────────────────────────────────────► waiting
//	 ▲                          │       a majority is lost: Form                        │
//	 │  restarts, or loses data │                                        longest TTL is over
//	 ├──────────────────────────┘                                                       ▼
//	 └───────────────────────────────────────────────────────────────────────────── granting
//
// Only quorum_state and quorum_join move a server, and any client may send them. A waiting
// server grants nothing for the longest TTL, because locks that it has lost may be held for
// so long.
//
// # Why tokens grow
//
// A lease counts when a majority has stored its token. So fewer servers than a majority lack
// it. That stays so:
//
//   - A server that loses data is no member any more, so it does not count.
//   - It returns with the greatest token of a majority of the other members, and at least one
//     of those has stored the token.
//   - A token that is committed between that reading and the return is on a majority of
//     servers without the returning one.
//   - A request to let a server in that is late has the number of an earlier return, and is
//     refused.
//
// So each later majority has a member with the token, and this member proposes a greater one.
// It proposed after it stored the token: a lock is granted at a server only when the earlier
// holder has left it there, or its TTL is over. If the TTL of a later grant is over before the
// earlier holder stores its token there, that later attempt ends, because its validity counts
// from before its first request.
//
// # Not covered
//
// If a majority loses data, nothing has the last token. The servers return with the greatest
// token that is known, and tokens grow if no clock is behind. Form is reported.
package quorum
