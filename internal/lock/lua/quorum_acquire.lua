-- quorum_acquire: acquire the lock of one server of a quorum, and propose a token. quorumKind.Acquire of package lock
-- returns the request, and quorum.Acquire counts the answers of all servers.
--
-- KEYS[1] lock    string, the holder's attempt; absent: free
-- KEYS[2] tomb    string, exists if this attempt was abandoned
-- KEYS[3] marker  hash, the state of this server, see quorum_join
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms, TTL of the lock from now, if I hold it
-- ARGV[3] list    the name of the list of servers that the client has
--
-- Returns {1, token, run, clock} held by me for ttl from now. The token is greater than all
--                               that were committed here. run identifies the server, clock (µs)
--                               is the time there
--         {4, left ms, holder}  held by another; left: -1 if the lock has no TTL
--         {6}                   the attempt was abandoned: this request came too late
--         {7}                   the name is in use by another kind of lock
--         {8} to {11}           this server grants nothing, see part_member.lua
--
-- Twice is safe: an attempt that holds the lock gets the full ttl again. A proposed token is not stored,
-- so the same token may be proposed again until quorum_renew has committed it.
-- refusal comes from part_member.
local lock, tomb, marker = KEYS[1], KEYS[2], KEYS[3]
local me, ttl, list = ARGV[1], ARGV[2], ARGV[3]

--@include member

local no, run, clock, top = refusal(marker, list, ttl)
if no then
  return no
end
if redis.call('EXISTS', tomb) == 1 then
  return {6}
end
if not redis.call('SET', lock, me, 'PX', ttl, 'NX') then
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then
    return {7}
  end
  if holder ~= me then
    return {4, redis.call('PTTL', lock), holder}
  end
  redis.call('PEXPIRE', lock, ttl)
end
return {1, string.format('%.0f', math.max(clock, top + 1)), run, string.format('%.0f', clock)}
