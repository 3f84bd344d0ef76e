-- quorum_renew: extend the lock of one server of a quorum, and commit its token. quorumKind.Renewal of package lock
-- returns the request, also to confirm a grant. quorum.Renew counts the answers of all servers.
--
-- KEYS[1] lock    string, the holder's attempt; absent: free
-- KEYS[2] tomb    string, exists if this attempt was abandoned
-- KEYS[3] marker  hash, the state of this server, see quorum_join
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms, of the lock
-- ARGV[3] list    the name of the list of servers that the client has
-- ARGV[4] token   of the lease
--
-- Returns {1}         held by me for ttl from now, and the token is committed
--         {4}         held by another: lost
--         {6}         the attempt was abandoned: this request came too late
--         {8} to {11} this server grants nothing, see part_member.lua
--
-- A lock that is free is acquired again: this server missed the acquire or an earlier
-- renewal, or has lost the lock. As for an acquire, the server must then grant locks. A lock that
-- is mine is extended by any server, unless the client has another list of servers.
--
-- Twice is safe: the second call extends my lock again, and the committed token never decreases.
-- extend comes from part_extend, which needs part_member.
local lock, tomb, marker = KEYS[1], KEYS[2], KEYS[3]
local me, ttl, list, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include member
--@include extend

return extend(lock, tomb, marker, me, ttl, list, token)
