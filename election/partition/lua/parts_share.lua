-- parts_share: share the partitions of a set among the replicas that live. The only script that changes the set.
--
-- KEYS[1] parts     sorted set, the set as a whole, see part_parts.lua
-- KEYS[2] fence     string, the counter of fencing tokens; a renewal, a quit and a look do not need it
-- KEYS[3] tomb      string, exists if this replica's request to join was abandoned; only a join and a quit need it
-- ARGV[1] me        the attempt of the replica
-- ARGV[2] mode      'join': begin a session; 'renew': extend it; 'sync': extend it, give back and take;
--                   'give': extend it and only give back; 'leave': the same, as the session is to end;
--                   'quit': end it; 'read': only read
-- ARGV[3] ttl       ms, of the session; of a quit, of the tombstone, or 0: no request to join may be under way
-- ARGV[4] n         the number of partitions
-- ARGV[5] known     the version of its partitions that the replica knows; after a join the session
-- ARGV[6] returned  of a call, give or leave: partitions whose work has ended, as 'partition:token partition:token'
-- ARGV[7] channel   where sessions are told to call
--
-- Returns {1, session}                    of a join
--         {1, version, left ms, surplus, partition, token, partition, token, …}
--                                         of a call, give or leave. left: until the lease of another session may
--                                         end, -1: there is none. surplus: how many partitions to give back. The
--                                         partitions are those that it got now
--         {2, version, left ms, surplus, partition, token, …}
--                                         the same, but the partitions are all that it owns: it knew another version
--         1, 2                            of a renewal; 2: a call has something to do
--         1, 0                            of a quit; 0: there was no such session
--         {0}, 0                          there is no such session (any more): lost
--         {-1, n}                         of a join: sessions live that share another number of partitions
--         {-2}                            of a join that was abandoned
--         {member, score, member, score, …}  of a look
--
--	(none) ──join──► takes part ──leave──► leaving ──quit──► (none)
--	                     └──────── its lease ends ─────────────▲
--	free ──call──► owned ──returned with its token; the session of the owner has ended──► free
--
-- Only a call of a session that takes part makes it an owner. Nothing is taken from a session that lives: it is
-- told how many to give back, and does so when their work has ended. Messages are hints: a renewal is answered
-- with 2 without them, and each replica calls when the lease of another one may end.
--
-- A version is a token that no other change has. So equal versions mean equal partitions, also after a failover to a
-- replica that lagged: the server is right, and the replica stops what it does not own there.
--
-- Twice is safe: a repeated join finds its session. A partition that is returned names its token, so a late repeat
-- does not return what the session has got since. If the reply to a call was lost, its repeat finds another version
-- than the replica knows, and lists all. A quit leaves a tombstone for a late join.
local parts, fence, tomb = KEYS[1], KEYS[2], KEYS[3]
local me, mode, ttl, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local known, returned, channel = ARGV[5], ARGV[6], ARGV[7]

--@include clock
--@include token
--@include parts

if mode == 'read' then
  return redis.call('ZRANGE', parts, 0, -1, 'WITHSCORES')
end
local now = server_ms()
local lost = mode == 'renew' and 0 or {0}

-- The end of the key comes first, because it needs no memory, and from the same clock as that of the session. If the
-- server stood still meanwhile, the key is gone.
local session = score(parts, 'm' .. me)
session = session and whole(-session)
if session and mode ~= 'quit' and score(parts, 'e' .. session) >= now then
  redis.call('PEXPIREAT', parts, whole(now + math.max(ttl, redis.call('PTTL', parts) + 1)))
  if redis.call('EXISTS', parts) == 0 then
    return lost
  end
  redis.call('ZADD', parts, whole(now + ttl), 'e' .. session)
end
local changed = expire(parts, now)
if mode == 'quit' then
  local had = score(parts, 'm' .. me)
  if had then
    forget(parts, session)
  end
  if ttl > 0 then
    redis.call('SET', tomb, '1', 'PX', ttl)
  end
  tell(parts, channel, nil, n, changed or had)
  return had and 1 or 0
end

if mode == 'join' then
  local stored = count(parts, 0, 0) + count(parts, SESSIONS, '+inf')
  if redis.call('EXISTS', tomb) == 1 then
    return {-2}
  end
  if stored ~= n then
    if count(parts, ENDS, ENDS_MAX) > 0 then
      return {-1, stored}
    end
    redis.call('DEL', parts)
    for p = 0, n - 1 do
      redis.call('ZADD', parts, 0, p)
    end
  end
  if not score(parts, 'm' .. me) then
    session = next_token(fence)
    redis.call('ZADD', parts, '-' .. session, 'm' .. me, LIVE, 'c' .. session, whole(now + ttl), 'e' .. session)
    redis.call('PEXPIREAT', parts, whole(now + math.max(ttl, redis.call('PTTL', parts) + 1)))
    tell(parts, channel, session, n, true)
  end
  return {1, session}
end
if not score(parts, 'm' .. me) then
  tell(parts, channel, nil, n, changed)
  return lost
end

local freed = false
for p, token in string.gmatch(returned, '(%d+):(%d+)') do
  if score(parts, p) == tonumber(session) and score(parts, 't' .. p) == -token then
    redis.call('ZADD', parts, 0, p)
    changed, freed = true, true
  end
end
local owned = count(parts, session, session)
local version = whole(-(score(parts, 'v' .. session) or -session))
local differs = version ~= known
if mode == 'leave' and redis.call('ZREM', parts, 'c' .. session) == 1 then
  changed = true
end
local leaves = not score(parts, 'c' .. session)
local take, give, listed = 0, owned, {}
if leaves then
  redis.call('ZADD', parts, LEAVING + owned, 'd' .. session)
else
  redis.call('ZADD', parts, LIVE + owned, 'c' .. session)
  local b = balance(parts, n)
  take, give = room(b, owned), surplus(parts, b, session, owned)
end
if mode == 'renew' then
  tell(parts, channel, session, n, changed)
  return (differs or take > 0 or give > 0) and 2 or 1
end

if mode ~= 'sync' then
  take = 0
end
if freed or take > 0 then
  version = next_token(fence)
  redis.call('ZADD', parts, '-' .. version, 'v' .. session)
end
if take > 0 then
  listed = redis.call('ZRANGEBYSCORE', parts, 0, 0, 'LIMIT', 0, take)
  for _, p in ipairs(listed) do
    redis.call('ZADD', parts, session, p, '-' .. version, 't' .. p)
  end
  redis.call('ZADD', parts, LIVE + owned + take, 'c' .. session)
end
if differs then
  listed = redis.call('ZRANGEBYSCORE', parts, session, session)
end
local reply = {differs and 2 or 1, version, next_end(parts, session, now), give}
for _, p in ipairs(listed) do
  table.insert(reply, p)
  table.insert(reply, whole(-score(parts, 't' .. p)))
end
tell(parts, channel, session, n, changed)
return reply
