// Package quorum has the rules of locks on a majority of independent servers: how their answers count, and which
// servers may be let in. It is pure: it uses neither Redis nor time. Package members sends the requests and applies the
// rules. test/explorer explores the scripts together with the rules.
//
// # Servers
//
// A server is a member from when it was let in until it restarts or loses its data. The marker, a key on the server,
// has the run id of that time. So clients notice that a server has restarted, even with an old copy of its data, and
// that its data was deleted.
//
//	           quorum_state            a majority of other members is known: Join
//	lost ─────────────────► returning ─────────────────────────────────────────────► waiting
//	 ▲                          │       a majority has an old copy of its data,         │
//	 │                          │       or no server has any: Form                      │
//	 │  restarts, or loses data │                                        longest TTL is over
//	 ├──────────────────────────┘                                                       ▼
//	 └───────────────────────────────────────────────────────────────────────────── granting
//
// Only quorum_state and quorum_join change the state of a server. Any client that acquires locks may send them. A
// client that only reads asks quorum_state to store nothing. A waiting server grants nothing for the longest TTL,
// because the locks that it has lost may still be held for so long.
//
// # Lists
//
// A user numbers the lists of servers. By mistake, two clients may have different servers under one number. Then the
// list of one client may have an empty server in a place where the other list has a member that still grants locks.
// Only a client that has seen the member in that place can tell whether the empty server is this member after a loss
// of its data. So once a list is in force, only a client that has seen the member there lets in a server that is not
// in the list. Other clients leave that server outside, and use the rest of the list: all clients then count
// majorities of the same list.
//
// Each loss of data makes a new version of the list. When a number is first used, two lists may be made at the same
// time. The following rules keep two lists from granting at the same time. They assume that the lists share a server
// that has its data. At the first use of a number, they also assume that no server loses its data while clients with
// either list are at work.
//
//   - A server grants only to clients that have its list, with its version.
//   - A server gets a new id when it is let in without its data. A list is a set of ids. A client follows a list only
//     if the list contains all members that the client knows.
//   - A client makes a new list only if the new list contains a majority of each list that the client sees.
//   - The first version of a list is only announced: nothing is granted with it. When all servers have it, the next
//     version is in force. So of two lists that share a server, at most one comes into force.
//   - Later versions are in force at once. A server is let in, or moved to the new version, when no older list can
//     grant anything without this server: a majority of each older list has the new version. The older lists are the
//     lists of the other servers now, and the lists from which they moved to the new version. The server then waits
//     for the longest TTL, because a lease that was granted before may be valid.
//   - A request to move a server names its former list, so a late request changes nothing.
//
// The tests of faults 118 and 136 in lockcore try this with Clients that have different lists.
//
// # Why tokens grow
//
// A lease counts when a majority of the servers has stored its token. So fewer servers than a majority lack
// the token, and this remains true:
//
//   - A server that loses data is no member any more, so it does not count.
//   - It returns with the greatest token of a majority of the other members, and at least one
//     of these members has stored the token.
//   - A token that is committed after a client has read these members, and before the server returns, is on a majority
//     that does not count the returning server.
//   - A late request to let a server in has the ReturnID of an earlier return, and is refused.
//
// So each majority that grants later has a member with the token, and this member proposes a greater one.
// The member does not make its proposal before it has stored the token: it grants a lock only after the earlier holder
// has released it there, or its TTL is over. There is one exception: it may grant the lock, forget that grant after its
// TTL, and only then store the token of the earlier holder. That grant does no harm: the attempt that received it is
// over, because its validity counts from before its first request.
//
// # Not covered
//
// If a majority has an old copy of its data, perhaps no server has the last token. The servers return with the
// greatest token that is known, and tokens grow if no clock is behind. Form is reported. If a majority
// has no data, but another server has some, no server is let in: Replaced is reported.
package quorum
