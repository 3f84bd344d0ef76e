-- parts_share: share the partitions of a set among the replicas that live. The only script that changes the set.
-- Sent by session.request of package partition, and for reads by Set.Partitions.
--
-- KEYS[1] parts     sorted set, the set as a whole, see part_parts.lua
-- KEYS[2] fence     string, the counter of fencing tokens; a renewal, a quit and a read do not need it
-- KEYS[3] tomb      string, exists if the request to join was abandoned; only a join and a quit need it
-- ARGV[1] me        the attempt of the replica
-- ARGV[2] mode      'join': begin a session; 'renew': extend it; 'sync': extend it, give back and take;
--                   'give': extend it and give back; 'leave': also give back, before the end of the session;
--                   'quit': end it; 'read': only read
-- ARGV[3] ttl       ms, of the session; of a quit, ms of the tombstone, 0 if no request to join may be under way
-- ARGV[4] n         number of partitions
-- ARGV[5] known     version that the replica knows of its partitions; after a join the session
-- ARGV[6] returned  of a sync, give or leave: partitions whose work has ended, as 'partition:token partition:token'
-- ARGV[7] channel   channel with the sessions that should sync
--
-- Returns {1, session}                    of a join
--         {1, version, left ms, surplus, partition, token, partition, token, …}
--                                         of a sync, give or leave. left: time until the lease of another session
--                                         may end, -1 without another session. surplus: partitions to give back.
--                                         The session got the listed partitions now
--         {2, version, left ms, surplus, partition, token, …}
--                                         of the same modes if known was another version: all partitions of the
--                                         session
--         1, 2                            of a renewal; 2 asks for a sync
--         1, 0                            of a quit; 0 if the session has ended before
--         {0}, 0                          the session has ended
--         {-1, n}                         of a join: live sessions share another number of partitions
--         {-2}                            of an abandoned join
--         {member, score, member, score, …}  of a read
--
--	(none) ──join──► live ──leave──► leaving ──quit──► (none)
--	                   └────── the lease ends ───────────▲
--	free ──sync──► owned ──returned with its token, or the owner's session ends──► free
--
-- Only its own sync makes a live session an owner. A session loses no partition while it lives: the answer has the
-- number of partitions to give back, and the session gives them back when their work has ended. Messages are hints:
-- without them, a renewal is answered with 2, and each replica syncs when the lease of another replica may end.
--
-- A version is a token that no other change has. So equal versions mean equal partitions, even after a failover to a
-- server that lagged: the server is right, and the replica stops the work of all other partitions.
--
-- Twice is safe: a repeated join finds its session. A returned partition has its token, so a late repeat
-- does not return a partition that the session got again. If the reply to a sync was lost, its repeat finds another
-- version than the replica knows, and lists all partitions. A quit leaves a tombstone for a late join.
local parts, fence, tomb = KEYS[1], KEYS[2], KEYS[3]
local me, mode, ttl, n = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local known, returned, channel = ARGV[5], ARGV[6], ARGV[7]

-- next_token comes from part_token, server_ms from part_clock, and all other functions from part_parts.
--@include clock
--@include token
--@include parts

if mode == 'read' then
  return redis.call('ZRANGE', parts, 0, -1, 'WITHSCORES')
end
local now = server_ms()
local lost = mode == 'renew' and 0 or {0}

-- PEXPIREAT comes first, because it needs no memory. If the server has stood still since TIME, PEXPIREAT deletes the
-- key, and the session is lost.
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
    end_session(parts, session)
  end
  if ttl > 0 then
    redis.call('SET', tomb, '1', 'PX', ttl)
  end
  notify(parts, channel, nil, n, changed or had)
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
    notify(parts, channel, session, n, true)
  end
  return {1, session}
end
if not score(parts, 'm' .. me) then
  notify(parts, channel, nil, n, changed)
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
  take, give = quota(b, owned), surplus(parts, b, session, owned)
end
if mode == 'renew' then
  notify(parts, channel, session, n, changed)
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
notify(parts, channel, session, n, changed)
return reply
