-- mutex_acquire: take the lock, join the line, or look how things stand.
--
-- KEYS[1] lock    string, the holder's attempt; absent: free
-- KEYS[2] fence   string, the counter of fencing tokens
-- KEYS[3] queue   sorted set, attempts in order of arrival
-- KEYS[4] seen    hash, attempt -> alive until (ms, server clock)
-- KEYS[5] tomb    string, exists if this attempt was given up
-- ARGV[1] me      this attempt
-- ARGV[2] ttl     ms, of the lock when held by me
-- ARGV[3] mode    'try' never queues; 'look' never queues anew; 'join' queues;
--                 a number queues at that score, after the line was lost
--
-- Returns {1, token}            held by me for ttl from now
--         {2, left ms, place}   near the head: look when the lock ends. That are
--                               three, as head and holder may die together
--         {3, left ms, place}   in line
--         {4, left ms, holder}  held by another, not in line (try)
--         {5}                   not in line any more (look): join again
--         {6}                   given up before: this request came too late
--         {7}                   the name is in use by another kind of lock
-- left: -1 if the lock has no TTL (a foreign client's); -2 if it is free but the
-- line could not be swept in one go: ask again.
--
-- Twice is safe: an attempt that holds is told so again, with the same token,
-- and extended to the full ttl (without that, a client whose first reply was
-- lost would believe longer than the server); one in line keeps its place.
local lock, fence, queue, seen, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, ttl, mode = ARGV[1], ARGV[2], ARGV[3]

--@include token

if mode ~= 'look' and redis.call('EXISTS', lock, queue, tomb) == 0 then
  local token = next_token(fence)
  redis.call('SET', lock, me, 'PX', ttl)
  return {1, token}
end

--@include line

if redis.call('EXISTS', tomb) == 1 then
  return {6}
end
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  return {7}
end
if holder == me then
  redis.call('PEXPIRE', lock, ttl)
  return {1, redis.call('GET', fence) or next_token(fence)}
end

local now, lapse = server_ms(), lapse_of(ttl)
local first = redis.call('ZRANGE', queue, 0, 0)[1]
local at = redis.call('ZSCORE', queue, me)
if not at then
  if mode == 'look' then
    return {5}
  end
  if mode ~= 'try' then
    at = tonumber(mode)
    if not at then
      -- Behind the last one even if the clock was set back.
      local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
      at = math.max(now, (tonumber(last[2]) or 0) + 1)
    end
    redis.call('ZADD', queue, string.format('%.0f', at), me)
  end
end
if at then
  redis.call('HSET', seen, me, string.format('%.0f', now + lapse))
  if redis.call('PTTL', queue) < lapse then
    redis.call('PEXPIRE', queue, lapse)
  end
  if redis.call('PTTL', seen) < lapse then
    redis.call('PEXPIRE', seen, lapse)
  end
end

if not holder then
  local token = advance(lock, fence, queue, seen, me, ttl, now)
  if not token and not at and redis.call('EXISTS', lock, queue) == 0 then
    token = next_token(fence)
    redis.call('SET', lock, me, 'PX', ttl)
  end
  if token then
    return {1, token}
  end
  holder = redis.call('GET', lock)
else
  -- A dead head would leave nobody with a timer at the lock's end.
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or tonumber(redis.call('HGET', seen, head) or 0) > now then
      if head and head ~= first and head ~= me then
        tell_head(lock, queue)
      end
      break
    end
    drop(queue, seen, head)
  end
end

local left = redis.call('PTTL', lock)
if not at then
  return {4, left, holder or ''}
end
local code = 3
for _, near in ipairs(redis.call('ZRANGE', queue, 0, 2)) do
  if near == me then
    code = 2
  end
end
return {code, left, string.format('%.0f', tonumber(at))}
