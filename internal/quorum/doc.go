// Package quorum has the rules of locks on a majority of independent servers: how their
// answers count, and which servers may be let in. It is pure: it uses neither Redis nor time.
// Package members sends the requests, and test/explorer explores the scripts together with these
// rules.
//
// # Servers
//
// A server counts as a member while it runs with the data that it had when it was let in. Its
// marker key has the run id of that time. So clients notice that a server has restarted, even with an
// old copy of its data, and that its data was deleted.
//
//	           quorum_state            a majority of other members is known: Join
//	lost ─────────────────► returning ─────────────────────────────────────────────► waiting
//	 ▲                          │       a majority has an old copy of its data,         │
//	 │                          │       or no server has any: Form                      │
//	 │  restarts, or loses data │                                        longest TTL is over
//	 ├──────────────────────────┘                                                       ▼
//	 └───────────────────────────────────────────────────────────────────────────── granting
//
// Only quorum_state and quorum_join move a server. Any client that acquires locks may send them. A client that only
// reads asks quorum_state to store nothing. A waiting server grants nothing for the longest TTL, because its lost
// locks may be held for so long.
//
// # Lists
//
// A user numbers the lists of servers. Two clients may have different servers under one number, by
// mistake. A server without data may then be at the place of another server that still grants to
// other clients. A client knows the difference only if it has seen a member of the list at that place. So
// once a list is in force, only this client lets in a server that is not in the list. Others leave the server
// outside, and use the rest of the list: they share its majorities.
//
// Each loss of data makes a new version of the list. At the first start of a number, two lists may begin at
// once. These rules keep two lists from granting at once. The lists must share a server that has its data, and
// during a first start, no server may lose its data while clients with both are at work.
//
//   - A server grants only to clients that have its list, with its version.
//   - A server gets a new id when it is let in without its data. A list is a set of ids. A client
//     follows a list only if all members that it knows are in it.
//   - A client makes a new list only if a majority of each list that it sees is in it.
//   - The first version of a number is announced: nothing is granted with it. If all servers have it, the
//     next version is in force. So at most one of two lists that share a server begins.
//   - Later versions are in force at once. A server is let in, or moved, only when a majority of each
//     list without the server has the new version, so that this list grants nothing more: the lists of other
//     servers, and the lists that they have left for the new version. The server then waits for
//     the longest TTL, because a lease that was granted before may be valid.
//   - A request to move a server names its former list, so a late request changes nothing.
//
// TestOtherServersUnderOneNumber tries this with random histories.
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
//   - A late request to let a server in has the number of an earlier return, and is refused.
//
// So each later majority has a member with the token, and this member proposes a greater one.
// It proposed after it stored the token: a lock is granted at a server only when the earlier
// holder has left it there, or its TTL is over. If the TTL of a later grant is over before the
// earlier holder stores its token there, that later attempt ends, because its validity counts
// from before its first request.
//
// # Not covered
//
// If a majority has an old copy of its data, nothing has the last token. The servers return with the
// greatest token that is known, and tokens grow if no clock is behind. Form is reported. If a majority
// has no data, and another server has some, nothing is done: Replaced is reported.
package quorum
