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
-- ARGV[4] keep    ms, for which the counter of tokens outlives a grant
--
-- Returns {1, token}            held by me for ttl from now
--         {2, left ms, place, holder}  near the head: look when the lock ends. That are
--                               three, as head and holder may die together
--         {3, left ms, place, holder}  in line
--         {4, left ms, holder}  held by another, not in line (try)
--         {5}                   not in line any more (look): join again
--         {6}                   given up before: this request came too late
--         {7}                   the name is in use by another kind of lock
-- left: -1 if the lock has no TTL (a foreign client's); -2, and no holder, if it is
-- free but the line could not be swept in one go: ask again.
--
-- Twice is safe: an attempt that holds is told so again, with the same token,
-- and extended to the full ttl (without that, a client whose first reply was
-- lost would believe longer than the server); one in line keeps its place.
local lock, fence, queue, seen, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, ttl, mode, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--@include token

if mode ~= 'look' and redis.call('EXISTS', lock, queue, tomb) == 0 then
  local token = next_token(fence, keep)
  redis.call('SET', lock, me, 'PX', ttl)
  return {1, token}
end

--@include line
--@include mutex

if redis.call('EXISTS', tomb) == 1 then
  return {6}
end
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  return {7}
end
if holder == me then
  redis.call('PEXPIRE', lock, ttl)
  heard(seen, me)
  return {1, redis.call('GET', fence) or next_token(fence, keep)}
end

local now, served = server_ms(), false
local first = redis.call('ZRANGE', queue, 0, 0)[1]
local at = stand(queue, seen, me, ttl, mode, now)
if not at and mode == 'look' then
  return {5}
end

if not holder then
  local token = advance(lock, fence, keep, queue, seen, me, ttl, now)
  if redis.call('EXISTS', lock, queue) == 0 then -- the line was swept away
    token = next_token(fence, keep)
    redis.call('SET', lock, me, 'PX', ttl)
  end
  if token then
    return {1, token}
  end
  holder = redis.call('GET', lock)
  served = holder
else
  -- A dead head would leave nobody with a timer at the lock's end.
  for _ = 1, 100 do
    local head = redis.call('ZRANGE', queue, 0, 0)[1]
    if not head or lives(seen, head, process_of(head) or '', now) then
      if head ~= first and head ~= me then
        tell_head(lock, queue)
      end
      break
    end
    drop(queue, seen, head)
  end
end

if not at then
  return {4, redis.call('PTTL', lock), holder}
end
return placed(lock, queue, me, at, holder, nil, served)
